"""Watch every GPU at 5 Hz while checks run: a process of its own that writes JSON lines.

Each line: ``{"t": seconds since the epoch, "gpu": index, util, mem_util, sm, mem, w, c, thr}`` (units of
:meth:`.nvml.Nvml.sample`).
"""

from __future__ import annotations

import json
import os
import signal
import time
from contextlib import suppress
from typing import Any

PERIOD = 0.2


class Sampler:
    """Starts at once; ``path`` is its file, ``pid`` its process."""

    def __init__(self, path: str, period: float = PERIOD) -> None:
        self.path = path
        open(path, "w").close()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                from .supervise import PR_SET_PDEATHSIG, prctl

                prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
                os.setsid()
                _watch(path, period)
            finally:
                os._exit(0)

    def stop(self) -> None:
        with suppress(OSError):
            os.kill(self.pid, signal.SIGKILL)
        with suppress(OSError):
            os.waitpid(self.pid, 0)


def _watch(path: str, period: float) -> None:
    from .nvml import Nvml, NvmlError

    try:
        with Nvml() as nvml, open(path, "a", buffering=1) as file:
            count = nvml.count()
            due = time.monotonic()
            while True:
                now = time.time()
                for index in range(count):
                    file.write(json.dumps({"t": round(now, 3), "gpu": index, **nvml.sample(index)}) + "\n")
                due += period
                time.sleep(max(0.01, due - time.monotonic()))
    except NvmlError:
        return


def read_samples(path: str) -> list[dict[str, Any]]:
    """The rows written so far; a cut last line is left out."""
    rows = []
    try:
        with open(path, encoding="utf-8") as file:
            for line in file:
                try:
                    rows.append(json.loads(line))
                except ValueError:
                    continue
    except OSError:
        return []
    return rows
