"""Run one thing in a process group of its own, with a deadline, and leave nothing behind.

Whatever it does (hang, crash, fork without end, daemonise, eat memory, flood its output) ends as a :class:`Finished`
and never takes the runner with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

TAIL = 16384
"""Bytes kept of the end of stdout and of stderr."""
GRACE = 2.0
"""Seconds that helpers of a finished check have to go away by themselves."""
PROCESS_LIMIT = 1024
"""Processes one check may have at a time."""

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 1, 4, 36


@dataclass
class Finished:
    """How a supervised process ended."""

    exit_code: int | None = None
    signal: int | None = None
    timed_out: bool = False
    out_of_memory: bool = False
    """The kernel's out-of-memory killer was at work meanwhile (the control group counted it)."""
    fork_bomb: bool = False
    unkillable: bool = False
    seconds: float = 0.0
    stdout: str = ""
    stderr: str = ""
    result: bytes = b""
    """What came through the private pipe."""
    leftovers: list[str] = field(default_factory=list)
    """Processes that were still running :data:`GRACE` seconds after the check ended; they were killed."""
    zombies: int = 0
    """Dead children that the check had not collected; they were reaped."""


def prctl(option: int, value: int) -> bool:
    """prctl(2) through libc; False where there is none (not Linux)."""
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        return bool(libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False


def become_reaper() -> None:
    """Inherit orphans of checks, so that they can be found and ended; and close this process's memory to others."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    prctl(PR_SET_DUMPABLE, 0)


def process_table() -> dict[int, tuple[int, int, int, str, str]]:
    """pid → (ppid, pgrp, session, state, name) from /proc; empty where there is no /proc."""
    table: dict[int, tuple[int, int, int, str, str]] = {}
    try:
        names = os.listdir("/proc")
    except OSError:
        return table
    for name in names:
        if not name.isdigit():
            continue
        try:
            with open("/proc/" + name + "/stat", "rb") as file:
                text = file.read().decode("utf-8", "replace")
        except OSError:
            continue
        head, _, rest = text.rpartition(")")
        fields = rest.split()
        if len(fields) < 4:
            continue
        comm = head.partition("(")[2]
        table[int(name)] = (int(fields[1]), int(fields[2]), int(fields[3]), fields[0], comm)
    return table


def family(root: int, spare: frozenset[int]) -> dict[int, tuple[str, str]]:
    """Processes of a check: its session, their descendants, and orphans that came to us. pid → (state, name)."""
    table = process_table()
    mine = os.getpid()
    found = {
        pid
        for pid, (ppid, pgrp, session, _, _) in table.items()
        if pid not in spare and (pid == root or pgrp == root or session == root or ppid == mine)
    }
    grown = True
    while grown:
        more = {pid for pid, row in table.items() if row[0] in found and pid not in found and pid not in spare}
        grown = bool(more)
        found |= more
    return {pid: (table[pid][3], table[pid][4]) for pid in found if pid != mine}


def oom_kills() -> int | None:
    """How often the out-of-memory killer struck in our control group; None when it cannot be read."""
    paths = ["/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"]
    try:
        with open("/proc/self/cgroup") as file:
            for line in file:
                parts = line.strip().split(":", 2)
                if len(parts) == 3 and parts[0] == "0":
                    paths.insert(0, "/sys/fs/cgroup" + parts[2].rstrip("/") + "/memory.events")
    except OSError:
        pass
    for path in paths:
        try:
            with open(path) as file:
                for line in file:
                    words = line.split()
                    if len(words) == 2 and words[0] == "oom_kill":
                        return int(words[1])
        except (OSError, ValueError):
            continue
    return None


class _Tail:
    """Keeps the end of a stream."""

    def __init__(self) -> None:
        self.kept = bytearray()

    def add(self, data: bytes) -> None:
        self.kept += data
        if len(self.kept) > 4 * TAIL:
            del self.kept[: len(self.kept) - TAIL]

    def text(self) -> str:
        return bytes(self.kept[-TAIL:]).decode("utf-8", "replace")


def run_supervised(
    child: Callable[[int, int], None],
    message: bytes,
    timeout: float,
    *,
    spare: frozenset[int] = frozenset(),
    process_limit: int = PROCESS_LIMIT,
    max_result: int = 8 << 20,
) -> Finished:
    """Fork; in the child call ``child(read_fd, write_fd)`` (it may exec); wait, at most ``timeout`` seconds.

    ``message`` is what the child can read from ``read_fd``; what it writes to ``write_fd`` is the result. Standard
    input is empty, standard output and error are captured. ``spare``: children of ours that are not part of it.
    """
    done = Finished()
    before = oom_kills()
    sys.stdout.flush()
    sys.stderr.flush()
    message_r, message_w = os.pipe()
    result_r, result_w = os.pipe()
    out_r, out_w = os.pipe()
    err_r, err_w = os.pipe()
    started = time.monotonic()
    pid = os.fork()
    if pid == 0:
        _in_child(child, (message_r, result_w, out_w, err_w), (message_w, result_r, out_r, err_r))
    for fd in (message_r, result_w, out_w, err_w):
        os.close(fd)
    tails = {out_r: _Tail(), err_r: _Tail()}
    result = bytearray()
    for fd in (message_w, result_r, out_r, err_r):
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_NONBLOCK)
    readers = [result_r, out_r, err_r]
    pending = memoryview(message)
    writing = True
    status: int | None = None
    next_census = started + 0.25

    def drain(fds: list[int]) -> None:
        for fd in fds:
            try:
                data = os.read(fd, 65536)
            except OSError as error:
                if error.errno in (errno.EAGAIN, errno.EINTR):
                    continue
                data = b""
            if not data:
                if fd in readers:
                    readers.remove(fd)
            elif fd == result_r:
                if len(result) < max_result:
                    result.extend(data)
            else:
                tails[fd].add(data)

    try:
        while status is None:
            now = time.monotonic()
            if now - started > timeout:
                done.timed_out = True
                break
            if now >= next_census:
                next_census = now + 0.25
                if len(family(pid, spare)) > process_limit:
                    done.fork_bomb = True
                    break
            if not writing and not readers:
                time.sleep(0.005)
            wait = 0.005 if now - started < 0.1 else 0.02
            ready, writable, _ = select.select(readers, [message_w] if writing else [], [], wait)
            if writable:
                try:
                    pending = pending[os.write(message_w, pending[:65536]) :]
                except OSError as error:
                    if error.errno != errno.EAGAIN:
                        pending = pending[:0]
                if not pending:
                    os.close(message_w)
                    writing = False
            drain(ready)
            waited, code = os.waitpid(pid, os.WNOHANG)
            if waited == pid:
                status = code
        done.seconds = time.monotonic() - started
        if status is None:
            status = _kill_family(pid, spare, done)
        _clean_up(pid, spare, done)
        for _ in range(64):  # what is still in the pipes; a survivor that keeps them open cannot hold us
            ready, _, _ = select.select(readers, [], [], 0)
            if not ready:
                break
            drain(ready)
    except BaseException:  # Ctrl-C, SIGTERM: what we started goes with us
        _kill_family(pid, spare, done)
        _reap(spare)
        raise
    finally:
        if writing:
            os.close(message_w)
        for fd in (result_r, out_r, err_r):
            os.close(fd)
    if status is not None:
        if os.WIFSIGNALED(status):
            done.signal = os.WTERMSIG(status)
        else:
            done.exit_code = os.WEXITSTATUS(status)
    after = oom_kills()
    done.out_of_memory = before is not None and after is not None and after > before
    done.stdout, done.stderr, done.result = tails[out_r].text(), tails[err_r].text(), bytes(result)
    return done


def _in_child(child: Callable[[int, int], None], keep: tuple[int, int, int, int], shut: tuple[int, ...]) -> None:
    """The forked side: own session, captured streams, then ``child``; never returns."""
    code = 70
    try:
        os.setsid()
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        prctl(PR_SET_DUMPABLE, 1)  # the runner's own protection would shut a driver out of /proc/self
        for fd in shut:
            os.close(fd)
        read_fd, write_fd, out_w, err_w = keep
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(out_w, 1)
        os.dup2(err_w, 2)
        for fd in (null, out_w, err_w):
            if fd > 2:
                os.close(fd)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        child(read_fd, write_fd)
        code = 0
    except BaseException as error:  # report and end: nothing may unwind into the parent's stack
        os.write(2, f"suite: {type(error).__name__}: {error}\n".encode("utf-8", "replace"))
    finally:
        os._exit(code)


def _signal_all(pids: list[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except OSError:
            continue


def _kill_family(pid: int, spare: frozenset[int], done: Finished) -> int | None:
    """Stop, then kill everything of the check; its wait status, or None when it does not die."""
    with contextlib.suppress(OSError):
        os.killpg(pid, signal.SIGSTOP)  # a fork bomb must not outrun us
    deadline = time.monotonic() + 10.0
    status: int | None = None
    while time.monotonic() < deadline:
        alive = [p for p, (state, _) in family(pid, spare).items() if state != "Z"]
        _signal_all(alive, signal.SIGKILL)
        if status is None:
            try:
                waited, code = os.waitpid(pid, os.WNOHANG)
                if waited == pid:
                    status = code
            except ChildProcessError:
                status = 9
        if status is not None and not [p for p in alive if p != pid]:
            return status
        time.sleep(0.02)
    done.unkillable = status is None
    return status


def _reap(spare: frozenset[int]) -> int:
    """Collect dead children that are ours now; how many."""
    count = 0
    for pid, (ppid, _, _, state, _) in process_table().items():
        if ppid == os.getpid() and state == "Z" and pid not in spare:
            try:
                waited, _ = os.waitpid(pid, os.WNOHANG)
            except OSError:
                continue
            count += waited == pid
    return count


def _clean_up(pid: int, spare: frozenset[int], done: Finished) -> None:
    """After the check ended: wait a little for its helpers, name and kill those that stay, reap the dead."""
    deadline = time.monotonic() + GRACE
    while True:
        done.zombies += _reap(spare)
        alive = {p: name for p, (state, name) in family(pid, spare).items() if state != "Z"}
        if not alive:
            break
        if time.monotonic() > deadline or done.timed_out or done.fork_bomb:
            if not (done.timed_out or done.fork_bomb):
                done.leftovers = sorted(alive.values())[:16]
            _kill_family(pid, spare, done)
            done.zombies += _reap(spare)
            break
        time.sleep(0.02)
