"""The side of the check: a process that makes one check, or calls one function, and answers.

Imports little, because every check pays for it: the runner starts this module afresh each time.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from .framing import frame
from .registry import ERROR, FAIL, Check, Context, Outcome, load_check

_UNPACKED: list[str] = []


def unpack(folder: str) -> None:
    """When we run from a zipapp, unpack it there for our children: they then share one compiled copy of each module."""
    import zipfile

    path, _ = package_root()
    if os.path.isfile(path):
        with zipfile.ZipFile(path) as archive:
            archive.extractall(folder)
        _UNPACKED[:] = [folder]


def package_root() -> tuple[str, str]:
    """``(path, package)``: what to put on sys.path, and under which name this package is found there."""
    package = __package__ or "gpuimg.suite"
    if _UNPACKED:
        return _UNPACKED[0], package
    path = os.path.dirname(os.path.abspath(__file__))
    for _ in package.split("."):
        path = os.path.dirname(path)
    return path, package


def interpreter_argv() -> list[str]:
    """Command that starts this package in a fresh interpreter: same one, ``-E`` (and ``-s`` where we have it).

    ``-E`` keeps PYTHONSTARTUP and the like out; PYTHONPATH is put back by :func:`honour_pythonpath`: what an image's
    user would import is what has to be tested.
    """
    path, package = package_root()
    flags = ["-E"] + (["-s"] if sys.flags.no_user_site else [])
    code = f"import sys; sys.path[0:1] = [{path!r}]; from {package}.child import main; sys.exit(main())"
    return [sys.executable or "python3", *flags, "-c", code]


def honour_pythonpath() -> None:
    """Put PYTHONPATH's folders on sys.path although we run with ``-E``: the image's user would import from there."""
    if sys.flags.ignore_environment:
        folders = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
        sys.path[1:1] = [p for p in folders if p not in sys.path]


def perform(check: Check, ctx: Context) -> dict[str, Any]:
    """Call the check and turn what comes back, or what is raised, into a plain result."""
    from dataclasses import asdict

    try:
        outcome = check.fn(ctx)
        if not isinstance(outcome, Outcome):
            outcome = Outcome(ERROR, reason=f"the check returned {type(outcome).__name__} and no outcome")
    except MemoryError:
        outcome = Outcome(
            FAIL,
            reason="MemoryError: the memory limit was reached",
            hint="give the container more memory (docker run --memory), or a smaller batch",
        )
    except (Exception, SystemExit) as error:
        import traceback

        from .hints import hint_for

        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        with contextlib.suppress(OSError, ValueError):  # the check may have closed it
            sys.stderr.write(text)
            sys.stderr.flush()
        brief = f"{type(error).__name__}: {error}"[:800]
        outcome = Outcome(ERROR, reason=brief, hint=getattr(error, "hint", None) or hint_for(text))
    return {**asdict(outcome), "windows": ctx.busy_windows}


def child_main(read_fd: int, write_fd: int) -> None:
    """In the process of a check: read the order and the key, work, answer under the key."""
    os.set_inheritable(read_fd, False)
    os.set_inheritable(write_fd, False)
    data = b""
    while True:
        piece = os.read(read_fd, 65536)
        if not piece:
            break
        data += piece
    os.close(read_fd)
    order = json.loads(data.decode("utf-8"))
    key = bytes.fromhex(order.pop("key"))
    started = time.monotonic()
    ctx = Context(
        check_id=order["check"],
        profile=order["profile"],
        floors=order["floors"],
        framework=order["framework"],
        device=order["device"],
        workdir=Path(order["workdir"]),
        nonce=order["nonce"],
        deadline=started + order["timeout"],
        facts=order["facts"],
        options=order["options"],
        earlier=order["earlier"],
        samples=order["samples"],
    )
    os.chdir(str(ctx.workdir))
    check = load_check(order["check"], order["module"])
    startup = max(0.0, time.time() - order["spawned"])
    result = {**perform(check, ctx), "startup_seconds": round(startup, 3)}
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    view = memoryview(frame(key, result))
    while view:
        view = view[os.write(write_fd, view) :]
    os.close(write_fd)


def call(function: str, result: str) -> int:
    """``--call module:function RESULT``: one function of this package with a JSON argument from stdin."""
    from .framing import dumps

    module, _, name = function.partition(":")
    argument = json.loads(sys.stdin.buffer.read().decode("utf-8"))
    answer: dict[str, Any]
    try:
        answer = {"value": getattr(importlib.import_module("." + module, __package__), name)(argument)}
        code = 0
    except Exception as error:
        import traceback

        traceback.print_exc()
        answer, code = {"error": f"{type(error).__name__}: {error}"[:2000]}, 1
    with open(result + ".part", "w", encoding="utf-8") as file:
        file.write(dumps(answer))
    os.replace(result + ".part", result)
    return code


def main() -> int:
    """``--one READ,WRITE`` (a check; the order comes through the pipe) or ``--call module:function RESULT``."""
    honour_pythonpath()
    if sys.argv[1] == "--call":
        return call(sys.argv[2], sys.argv[3])
    read_fd, write_fd = (int(number) for number in sys.argv[2].split(","))
    child_main(read_fd, write_fd)
    return 0
