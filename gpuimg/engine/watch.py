"""The host's own view of the GPUs while a container runs: NVML from outside, where the image cannot forge it."""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PERIOD = 0.2
"""Seconds between samples (5 Hz)."""
WORKED_UTIL = 10
"""Percent of SM time; an idle card shows 0, a matrix product of half a second shows far more in some sample."""
WORKED_MEMORY_MIB = 100
"""A CUDA context alone takes 150 MiB or more on the cards of this decade."""


@dataclass
class _Seen:
    name: str
    uuid: str
    base_memory_mib: float
    max_memory_mib: float
    max_util: int = 0
    container_memory_mib: float = 0.0
    util: list[int] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)


class GpuWatch:
    """Samples utilisation, memory and processes of every GPU in a thread until :meth:`stop`."""

    def __init__(self, *, local: bool) -> None:
        self._reason: str | None = None if local else "the engine runs on another machine"
        self._seen: dict[int, _Seen] = {}
        self._container_id: str | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._processes_readable = False

    def start(self) -> None:
        if self._reason is not None:
            return
        try:
            import pynvml

            pynvml.nvmlInit()
            for index in range(pynvml.nvmlDeviceGetCount()):
                handle = pynvml.nvmlDeviceGetHandleByIndex(index)
                used = pynvml.nvmlDeviceGetMemoryInfo(handle).used / 2**20
                self._seen[index] = _Seen(
                    _text(pynvml.nvmlDeviceGetName(handle)), _text(pynvml.nvmlDeviceGetUUID(handle)), used, used
                )
        except ImportError:
            self._reason = "nvidia-ml-py is not installed (pip install gpuimg[gpu])"
            return
        except Exception as error:  # NVMLError has a class per code, all made at run time
            self._reason = f"NVML: {error}"
            return
        if not self._seen:
            self._reason = "NVML sees no GPU"
            return
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def follow(self, container_id: str) -> None:
        """From now on count GPU processes of this container as its own."""
        self._container_id = container_id

    def stop(self) -> dict[str, Any]:
        """What was seen: ``available``, ``worked`` and per GPU the maxima and the 5 Hz curves."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=5)
        if self._reason is not None:
            return {"available": False, "reason": self._reason}
        with suppress(Exception):
            import pynvml

            pynvml.nvmlShutdown()
        gpus = [
            {
                "index": index,
                "name": seen.name,
                "uuid": seen.uuid,
                "max_utilisation_percent": seen.max_util,
                "memory_before_mib": round(seen.base_memory_mib),
                "max_memory_mib": round(seen.max_memory_mib),
                "container_memory_mib": round(seen.container_memory_mib) if self._processes_readable else None,
                "utilisation_percent": seen.util,
                "memory_mib": [round(m) for m in seen.memory],
            }
            for index, seen in self._seen.items()
        ]
        return {
            "available": True,
            "worked": worked(gpus),
            "period_s": PERIOD,
            "processes_attributed": self._processes_readable,
            "gpus": gpus,
        }

    def _run(self) -> None:
        import pynvml

        while not self._stop.wait(PERIOD):
            for index, seen in self._seen.items():
                with suppress(Exception):  # one unreadable counter must not end the watch
                    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
                    util = int(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu)
                    memory = pynvml.nvmlDeviceGetMemoryInfo(handle).used / 2**20
                    seen.util.append(util)
                    seen.memory.append(memory)
                    seen.max_util = max(seen.max_util, util)
                    seen.max_memory_mib = max(seen.max_memory_mib, memory)
                    ours = 0.0
                    for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle):
                        if self._container_id and in_container(int(process.pid), self._container_id):
                            self._processes_readable = True
                            ours += (process.usedGpuMemory or 0) / 2**20
                    seen.container_memory_mib = max(seen.container_memory_mib, ours)


def worked(gpus: list[dict[str, Any]]) -> bool:
    """Did any GPU work for the container: by its own processes where they are told apart, else by load and memory."""
    for gpu in gpus:
        if gpu["container_memory_mib"]:
            return True
        more = gpu["max_memory_mib"] - gpu["memory_before_mib"] >= WORKED_MEMORY_MIB
        if more and gpu["max_utilisation_percent"] >= WORKED_UTIL:
            return True
    return False


def in_container(pid: int, container_id: str) -> bool:
    """True when a process of this machine belongs to the container, by its control group."""
    try:
        return container_id in Path(f"/proc/{pid}/cgroup").read_text()
    except OSError:
        return False


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
