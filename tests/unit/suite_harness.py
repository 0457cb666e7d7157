"""Run planted process faults through the real runner, in a process of its own (it forks, kills and reaps).

python tests/unit/suite_harness.py      prints one JSON object: {fault id: result line}
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from gpuimg.suite import supervise  # noqa: E402
from gpuimg.suite.profiles import Profile  # noqa: E402
from gpuimg.suite.registry import Context, Outcome, check, failed, passed  # noqa: E402
from gpuimg.suite.runner import Options, Run  # noqa: E402


def plant(fault: str, timeout: float = 20.0, framework: bool = False):  # type: ignore[no-untyped-def]
    """Register a check that commits the fault."""
    return check(
        fault,
        title=fault,
        proves="-",
        how="-",
        threshold="-",
        source="-",
        timeout=timeout,
        light=True,
    )


@plant("fault.hang", timeout=0.5)
def hang(ctx: Context) -> Outcome:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        time.sleep(60)


@plant("fault.segfault")
def segfault(ctx: Context) -> Outcome:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ctypes.string_at(8)
    return passed()


@plant("fault.abort")
def abort(ctx: Context) -> Outcome:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.abort()


@plant("fault.busError")
def bus_error(ctx: Context) -> Outcome:
    """What a full /dev/shm does: a mapped page that has nothing behind it."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with tempfile.TemporaryFile() as file:
        file.truncate(mmap.PAGESIZE * 4)
        view = mmap.mmap(file.fileno(), mmap.PAGESIZE * 4)
        file.truncate(0)
        view[mmap.PAGESIZE] = 1
    return passed()


@plant("fault.memory")
def memory(ctx: Context) -> Outcome:
    resource.setrlimit(resource.RLIMIT_AS, (512 << 20, 512 << 20))
    keep = []
    while True:
        keep.append(bytearray(64 << 20))


@plant("fault.killed")
def killed(ctx: Context) -> Outcome:
    os.kill(os.getpid(), signal.SIGKILL)
    return passed()


@plant("fault.forgedPrint")
def forged_print(ctx: Context) -> Outcome:
    """Prints what a passing run would look like, and fails."""
    good = {"line": "check", "id": ctx.check_id, "status": "pass", "required": True, "seconds": 0.1}
    for line in (json.dumps(good), "GPUIMG1 " + "0" * 64 + " " + json.dumps({"status": "pass"})):
        print(line, flush=True)
        print(line, file=sys.stderr, flush=True)
    return failed("the real answer")


@plant("fault.forgedChannel")
def forged_channel(ctx: Context) -> Outcome:
    """Writes a frame without the key to every descriptor it can find."""
    line = b"GPUIMG1 " + b"0" * 64 + b' {"status": "pass", "measured": {}, "expected": {}}\n'
    for fd in range(3, 64):
        try:
            os.write(fd, line)
        except OSError:
            continue
    return passed()


@plant("fault.zombie")
def zombie(ctx: Context) -> Outcome:
    for _ in range(3):
        if os.fork() == 0:
            os._exit(0)
    time.sleep(0.2)
    return passed()


@plant("fault.orphan")
def orphan(ctx: Context) -> Outcome:
    """A worker in a session of its own that outlives its parent."""
    subprocess.Popen(["sleep", "300"], start_new_session=True)
    return passed()


@plant("fault.forkBomb")
def fork_bomb(ctx: Context) -> Outcome:
    for _ in range(200):
        if os.fork() == 0:
            time.sleep(300)
            os._exit(0)
    time.sleep(300)
    return passed()


@plant("fault.silentExit")
def silent_exit(ctx: Context) -> Outcome:
    os._exit(0)


@plant("fault.numpyAbi")
def numpy_abi(ctx: Context) -> Outcome:
    """What MindSpore 2.10 with NumPy 2 does: a traceback on stderr, then it computes on and ends well."""
    sys.stderr.write("A module that was compiled using NumPy 1.x cannot be run in\nNumPy 2.4.6 as it may crash.\n")
    sys.stderr.write("ImportError: numpy.core.multiarray failed to import\n")
    return passed({"value": 1})


@plant("fault.missingLibrary")
def missing_library(ctx: Context) -> Outcome:
    ctypes.CDLL("libcudnn_of_nobody.so.9")
    return passed()


@plant("fault.noKernel")
def no_kernel(ctx: Context) -> Outcome:
    raise RuntimeError("CUDA error: no kernel image is available for execution on the device")


@plant("fault.notANumber")
def not_a_number(ctx: Context) -> Outcome:
    """NaN and infinities in what is measured must not break the document."""
    return failed("NaN in the product", measured={"error": float("nan"), "largest": float("inf")})


@plant("fault.flood")
def flood(ctx: Context) -> Outcome:
    block = "x" * 65535 + "\n"
    for _ in range(800):
        sys.stdout.write(block)
    return passed({"printed_mib": 50})


@plant("fault.stdoutClosed")
def closed(ctx: Context) -> Outcome:
    os.close(1)
    os.close(2)
    raise ValueError("and says why all the same")


def main() -> None:
    from gpuimg.suite.registry import _REGISTRY

    supervise.prctl(supervise.PR_SET_CHILD_SUBREAPER, 1)
    supervise.GRACE = 0.3
    supervise.PROCESS_LIMIT = 100
    original = supervise.run_supervised

    def limited(*args, **kwargs):  # type: ignore[no-untyped-def]
        return original(*args, process_limit=100, **kwargs)

    import gpuimg.suite.runner as runner

    runner.run_supervised = limited
    run = Run(Options(Profile("t", "t", 60, ("*",), ()), "t"))
    run.environment = {"gpus": []}
    lines = {}
    for fault, planted in list(_REGISTRY.items()):
        if fault.startswith("fault."):
            lines[fault] = run.run_check(planted, True)
    lines["children"] = {"alive": sorted(supervise.family(os.getpid(), frozenset()))}  # type: ignore[assignment]
    print(json.dumps(lines))


if __name__ == "__main__":
    main()
