"""One container of an untrusted image: locked down, watched, and always removed.

No network unless asked for, no capabilities, no new privileges, limited processes, memory and shared memory, root
file system read-only, the image named by its id so that nothing is pulled. What a killed run left behind is found
by label and removed at the next start (``sweep``).
"""

from __future__ import annotations

import io
import os
import queue
import socket
import tarfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from gpuimg.engine.gpu_access import GpuAccess
from gpuimg.errors import BadInput, EnvironmentFault, GpuimgError

if TYPE_CHECKING:
    import docker
    from docker.models.containers import Container as DockerContainer

LABEL = "io.gpuimg.run"
LABEL_OWNER = "io.gpuimg.owner"
LABEL_DEADLINE = "io.gpuimg.deadline"
HOME = "/gpuimg"
"""Where our files are inside the container: an anonymous volume, removed with it."""
NETWORKS = ("none", "host", "bridge")
Delivery = Literal["upload", "bind", "stdin"]

_GIB = 1 << 30
_CACHES = {
    "XDG_CACHE_HOME": "/tmp/.cache",
    "TRITON_CACHE_DIR": "/tmp/.cache/triton",
    "TORCHINDUCTOR_CACHE_DIR": "/tmp/.cache/inductor",
    "CUDA_CACHE_PATH": "/tmp/.cache/nv",
    "CUPY_CACHE_DIR": "/tmp/.cache/cupy",
    "NUMBA_CACHE_DIR": "/tmp/.cache/numba",
    "MPLCONFIGDIR": "/tmp/.cache/matplotlib",
}
"""Caches that would go to a home directory on the read-only root; HOME itself stays as the image has it."""


_NO_MEMLOCK: set[str] = set()
"""Engines (by address) that were seen unable to raise the memlock limit."""


_RUNNING: weakref.WeakSet[Container] = weakref.WeakSet()


def kill_running() -> None:
    """Kill every container this process has running: for Ctrl-C while they run in other threads.

    Their runs then end as broken ones, and remove their containers themselves.
    """
    for container in list(_RUNNING):
        container.kill()


class CannotStart(EnvironmentFault):
    """The engine could not start the container (exit 4)."""


class NoSuchProgram(GpuimgError):
    """The program named as entrypoint is not in the image or cannot be executed there."""


@dataclass(frozen=True)
class Limits:
    """What one container may use. Bytes; None leaves it to the engine."""

    pids: int = 8192
    memory: int | None = None
    shm: int = 8 * _GIB
    tmp: int = 8 * _GIB
    cpus: float | None = None


def default_limits(memory: int | None = None) -> Limits:
    """Memory 95 % of the engine's machine (``memory`` bytes), /dev/shm a quarter and /tmp half of it at most.

    Both count as memory only as far as they are filled.
    """
    if not memory:
        return Limits()
    return Limits(
        memory=int(memory * 0.95),
        shm=min(max(_GIB, memory // 4), 64 * _GIB),
        tmp=min(max(_GIB, memory // 2), 64 * _GIB),
    )


@dataclass(frozen=True)
class Line:
    """One line a container wrote, without its newline."""

    stream: Literal["stdout", "stderr"]
    text: str
    at: float
    """Seconds since the container started."""


@dataclass
class Ended:
    """How a container ended. ``timed_out`` means that we stopped it."""

    exit_code: int | None
    timed_out: bool
    oom_killed: bool
    seconds: float
    stderr_tail: list[str] = field(default_factory=list)


class Container:
    """Context manager around one container; leaving it removes the container and its volume, whatever happened."""

    def __init__(
        self,
        client: docker.DockerClient,
        image_id: str,
        *,
        entrypoint: Sequence[str] | None,
        command: Sequence[str] = (),
        access: GpuAccess | None = None,
        network: str = "none",
        environment: Mapping[str, str] | None = None,
        files: Mapping[str, bytes] | None = None,
        limits: Limits | None = None,
        run_id: str,
        timeout: float,
        stdin: bytes | None = None,
        workdir: str | None = "/tmp",
        user: str | None = None,
        delivery: Delivery = "upload",
        bind_from: Path | None = None,
    ) -> None:
        """``entrypoint`` None keeps the image's own. ``files`` (name → content) appear under ``/gpuimg``.

        ``delivery``: 'upload' copies them into a volume (works with remote engines), 'bind' mounts ``bind_from``
        (a directory on the engine's machine that already holds them) read-only, 'stdin' brings none.
        """
        if network not in NETWORKS:
            raise BadInput(f"--network {network!r}; allowed: {', '.join(NETWORKS)}")
        self._client = client
        self._files = dict(files or {})
        self._delivery = delivery
        self._stdin = stdin
        self._timeout = timeout
        self._discard = threading.Event()
        self._container: DockerContainer | None = None
        self._options = _create_options(
            image_id, entrypoint, command, access, network, dict(environment or {}), limits or default_limits(),
            run_id, timeout, stdin is not None, workdir, user, delivery, bind_from,
        )  # fmt: skip

    def __enter__(self) -> Container:
        self._create()
        _RUNNING.add(self)
        return self

    def _create(self) -> None:
        from docker import errors

        if self._client.api.base_url in _NO_MEMLOCK:
            self._options["ulimits"] = [u for u in self._options["ulimits"] if u.name != "memlock"]
        try:
            self._container = self._client.containers.create(**self._options)
            if self._files and self._delivery == "upload":
                self._upload(self._container)
        except errors.APIError as error:
            self.remove()
            raise _explain(error, str(self._options["image"])) from error
        except BaseException:
            self.remove()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    @property
    def id(self) -> str:
        assert self._container is not None
        return str(self._container.id)

    @property
    def memlock(self) -> str:
        """'unlimited', or 'engine default' where the engine may not raise the limit."""
        return "engine default" if self._client.api.base_url in _NO_MEMLOCK else "unlimited"

    def stream(self, deadline: float | None = None) -> Iterator[Line]:
        """Start and yield lines as they come, until the container ends or its time is up (then it is killed).

        Call :meth:`ended` afterwards. A line longer than 4 MiB is cut: an image under test must not fill our memory.

        Raises:
            NoSuchProgram, CannotStart: it could not be started.
        """
        from docker import errors

        self._began = time.monotonic()
        until = self._began + (self._timeout if deadline is None else deadline)
        lines: queue.Queue[Line | None] = queue.Queue(maxsize=10_000)
        try:
            pipe = self._start()
        except errors.APIError as error:
            if "rlimit" not in str(error) or self._client.api.base_url in _NO_MEMLOCK:
                raise _explain(error, str(self._options["image"])) from error
            # The engine itself lacks CAP_SYS_RESOURCE (it runs in a container or sandbox): take its default.
            _NO_MEMLOCK.add(self._client.api.base_url)
            self.remove()
            self._discard.clear()
            self._create()
            try:
                pipe = self._start()
            except errors.APIError as again:
                raise _explain(again, str(self._options["image"])) from again
        reader = threading.Thread(target=self._read, args=(lines,), daemon=True)
        reader.start()
        if pipe is not None and self._stdin is not None:
            threading.Thread(target=_write_all, args=(pipe, self._stdin), daemon=True).start()
        self._timed_out = False
        while True:
            left = until - time.monotonic()
            if left <= 0:
                self._timed_out = True
                self.kill()
                return
            with suppress(queue.Empty):
                line = lines.get(timeout=min(left, 1.0))
                if line is None:
                    return
                yield line

    def ended(self, wait: float = 20.0) -> Ended:
        """State after :meth:`stream`; waits for the engine to notice the end."""
        from docker import errors

        container = self._container
        assert container is not None
        code: int | None = None
        if not self._timed_out:
            until = time.monotonic() + max(wait, 1.0)
            while time.monotonic() < until:  # poll: a wait call could hang with the engine
                container.reload()
                if container.status in ("exited", "dead"):
                    break
                time.sleep(0.05)
            else:
                self._timed_out = True
                self.kill()
        state: dict[str, Any] = {}
        with suppress(errors.APIError):
            container.reload()
            state = container.attrs.get("State", {})
            code = int(state["ExitCode"]) if container.status in ("exited", "dead") else None
        return Ended(
            exit_code=None if self._timed_out else code,
            timed_out=self._timed_out,
            oom_killed=bool(state.get("OOMKilled")),
            seconds=time.monotonic() - self._began,
        )

    def kill(self) -> None:
        from docker import errors

        self._discard.set()  # the engine cannot stop a container whose output nobody takes
        if self._container is not None:
            with suppress(errors.APIError, OSError):
                self._container.kill()

    def remove(self) -> None:
        """Remove container and volume. An engine that is gone is no error here: ``sweep`` finds it later."""
        _RUNNING.discard(self)
        self._discard.set()
        container, self._container = self._container, None
        if container is not None:
            _remove(container)

    def _upload(self, container: DockerContainer) -> None:
        if not container.put_archive(HOME, _tar(self._files)):
            raise CannotStart("the engine did not take the suite's files")

    def _start(self) -> Any:
        """Attach before starting, so that nothing is missed; the pipe for stdin, if there is one."""
        container = self._container
        assert container is not None
        pipe = container.attach_socket(params={"stdin": 1, "stream": 1}) if self._stdin is not None else None
        self._feed = container.attach(stdout=True, stderr=True, stream=True, demux=True)
        container.start()
        return pipe

    def _read(self, lines: queue.Queue[Line | None]) -> None:
        held: dict[str, bytes] = {"stdout": b"", "stderr": b""}

        def put(name: Any, raw: bytes) -> None:
            text = raw[: 4 << 20].decode("utf-8", "replace").rstrip("\r")
            while not self._discard.is_set():
                with suppress(queue.Full):
                    lines.put(Line(name, text, time.monotonic() - self._began), timeout=0.2)
                    return

        try:
            for pair in self._feed:
                for name, piece in zip(("stdout", "stderr"), pair, strict=True):
                    if not piece:
                        continue
                    *whole, rest = (held[name] + piece).split(b"\n")
                    for raw in whole:
                        put(name, raw)
                    if len(rest) > 4 << 20:
                        put(name, rest)
                        rest = b""
                    held[name] = rest
        except Exception as error:  # the engine hung up: what was read stays, the end is judged by its state
            put("stderr", f"gpuimg: connection to the engine ended: {type(error).__name__}".encode())
        for name, rest in held.items():
            if rest:
                put(name, rest)
        while not self._discard.is_set():
            with suppress(queue.Full):
                lines.put(None, timeout=0.2)
                return


def run_once(
    client: docker.DockerClient,
    image_id: str,
    *,
    timeout: float,
    run_id: str,
    on_line: Callable[[Line], None] = lambda _: None,
    max_lines: int = 20_000,
    **options: Any,
) -> tuple[list[Line], Ended]:
    """Run one container to its end and return what it wrote (the first ``max_lines`` lines)."""
    lines: list[Line] = []
    with Container(client, image_id, timeout=timeout, run_id=run_id, **options) as container:
        for line in container.stream():
            on_line(line)
            if len(lines) < max_lines:
                lines.append(line)
        ended = container.ended()
    ended.stderr_tail = [line.text for line in lines if line.stream == "stderr"][-20:]
    return lines, ended


def sweep(client: docker.DockerClient) -> list[str]:
    """Remove containers whose run is dead: same machine and process gone, or past their deadline. Returns ids."""
    from docker import errors

    removed = []
    try:
        found = client.containers.list(all=True, filters={"label": LABEL}, ignore_removed=True)
    except errors.DockerException:
        return []
    for container in found:
        if _is_left_over(container.labels, now=time.time(), alive=_owner_alive):
            _remove(container)
            removed.append(container.short_id)
    return removed


def owner_mark(pid: int | None = None) -> str:
    """``host:pid:start-time``: names this process and no later one with the same number."""
    number = os.getpid() if pid is None else pid
    return f"{socket.gethostname()}:{number}:{_start_time(number)}"


def _is_left_over(labels: Mapping[str, str], *, now: float, alive: Callable[[str], bool]) -> bool:
    owner = labels.get(LABEL_OWNER, "")
    if owner.split(":")[0] == socket.gethostname():
        return not alive(owner)
    deadline = labels.get(LABEL_DEADLINE, "")
    return deadline.isdigit() and now > int(deadline)


def _owner_alive(mark: str) -> bool:
    parts = mark.split(":")
    return len(parts) == 3 and parts[1].isdigit() and _start_time(int(parts[1])) == parts[2] != "?"


def _start_time(pid: int) -> str:
    """Start time of a process in clock ticks since boot, '?' when there is no such process (or no /proc)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return "?" if Path("/proc/self/stat").exists() or pid != os.getpid() else "0"
    return text.rsplit(")", 1)[-1].split()[19]


def _remove(container: DockerContainer) -> None:
    from docker import errors

    for pause in (0.0, 0.5, 2.0):
        time.sleep(pause)
        try:
            container.remove(force=True, v=True)
            return
        except errors.NotFound:
            return
        except (errors.APIError, OSError):
            continue  # removal already in progress, or the engine is busy


def _create_options(
    image_id: str,
    entrypoint: Sequence[str] | None,
    command: Sequence[str],
    access: GpuAccess | None,
    network: str,
    environment: dict[str, str],
    limits: Limits,
    run_id: str,
    timeout: float,
    stdin: bool,
    workdir: str | None,
    user: str | None,
    delivery: Delivery,
    bind_from: Path | None,
) -> dict[str, Any]:
    from docker.types import LogConfig, Mount, Ulimit

    gpu = access.create_options() if access is not None else {}
    merged = {**_CACHES, **gpu.pop("environment", {}), **environment}
    mounts = []
    if delivery == "upload":
        mounts.append(Mount(target=HOME, source=None, type="volume"))
    elif delivery == "bind":
        assert bind_from is not None
        mounts.append(Mount(target=HOME, source=str(bind_from), type="bind", read_only=True))
    options: dict[str, Any] = {
        "image": image_id,
        "command": list(command),
        "environment": merged,
        "labels": {
            LABEL: run_id,
            LABEL_OWNER: owner_mark(),
            LABEL_DEADLINE: str(int(time.time() + timeout + 600)),
        },
        "network_mode": network,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges"],
        "pids_limit": limits.pids,
        "shm_size": limits.shm,
        "ipc_mode": "private",
        "ulimits": [Ulimit(name="memlock", soft=-1, hard=-1), Ulimit(name="core", soft=0, hard=0)],
        "read_only": True,
        "tmpfs": {
            # exec: compilers of the frameworks load what they just built from /tmp
            "/tmp": f"rw,exec,nosuid,nodev,mode=1777,size={limits.tmp}",
            "/var/tmp": f"rw,exec,nosuid,nodev,mode=1777,size={limits.tmp // 4}",
            "/run": "rw,noexec,nosuid,nodev,mode=755,size=64m",
        },
        "mounts": mounts,
        "stdin_open": stdin,
        "log_config": LogConfig(type="none"),  # endless output must not fill the engine's disk
        **gpu,
    }
    if network == "none":
        # without a network Docker writes no line for the container's own name, and gloo looks its own name up
        options["hostname"] = "localhost"
    if limits.memory is not None:
        options["mem_limit"] = limits.memory
        options["memswap_limit"] = limits.memory
    if limits.cpus is not None:
        options["nano_cpus"] = int(limits.cpus * 1e9)
    if entrypoint is not None:
        options["entrypoint"] = list(entrypoint)
    if workdir is not None:
        options["working_dir"] = workdir
    if user is not None:
        options["user"] = user
    if not options["command"]:
        del options["command"]
    return options


def _tar(files: Mapping[str, bytes]) -> bytes:
    """A tar of plain files, owned by root, readable and executable by whatever user the image runs as."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, content in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o555
            archive.addfile(entry, io.BytesIO(content))
    return out.getvalue()


def _write_all(pipe: Any, content: bytes) -> None:
    raw = getattr(pipe, "_sock", pipe)
    with suppress(OSError):
        raw.sendall(content)
        raw.shutdown(socket.SHUT_WR)


_NOT_THERE = ("executable file not found", "no such file or directory", "permission denied", "exec format error",
              "not a directory", "is a directory")  # fmt: skip


def _explain(error: Any, image: str) -> GpuimgError:
    """The engine's complaint in one sentence, and what to do."""
    text = str(getattr(error, "explanation", None) or error)
    low = text.lower()
    if "could not select device driver" in low:
        return CannotStart(
            "the engine cannot give containers a GPU (could not select device driver)",
            hint="install the NVIDIA Container Toolkit, or let it use CDI: gpuimg doctor",
        )
    if "cdi" in low and ("unresolvable" in low or "failed to inject" in low or "injection failed" in low):
        return CannotStart(f"CDI: {text}", hint="nvidia-ctk cdi list; then nvidia-ctk cdi generate")
    if "unknown or invalid runtime name" in low:
        return CannotStart(text, hint="gpuimg doctor")
    if "unsatisfied condition" in low or "nvidia-container-cli" in low:
        return CannotStart(f"the image's NVIDIA_REQUIRE_* or the toolkit refuses this host: {text}")
    if "no such image" in low:
        return CannotStart(f"no image {image} in the engine", hint="docker pull it, or check the name")
    if "no space left" in low:
        return CannotStart("the engine's disk is full", hint="docker system df; docker image prune")
    if any(sign in low for sign in _NOT_THERE) and ("exec" in low or "start" in low or "runc" in low):
        return NoSuchProgram(text.splitlines()[0] if text else "cannot be executed")
    return CannotStart(f"the engine could not run {image}: {text}")
