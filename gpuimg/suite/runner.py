"""Run the checks of a profile, each in a process of its own, and write the document.

Flow: facts of the environment → choice of checks → for each: spawn, wait, judge how it ended → lines → summary.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from . import SUITE_VERSION
from .child import _UNPACKED, child_main, interpreter_argv, package_root, unpack
from .document import SCHEMA, seal, write_line
from .framing import frame, unframe
from .hints import SIGNAL_HINTS, find_trap, hint_for
from .profiles import Profile
from .registry import ERROR, FAIL, PASS, SKIP, Check, Outcome, all_checks, failed, skipped
from .supervise import Finished, become_reaper, run_supervised

PASSED, FAILED, BAD_INPUT, CANNOT_TELL = 0, 1, 2, 3
"""Exit codes of a run."""

OUTPUT_KEPT = 2000
"""Characters of a check's stdout and stderr that are kept in its line when it did not pass."""


@dataclass
class Options:
    """What the user asked for."""

    profile: Profile
    profile_name: str
    framework: str | None = None
    device: str = "auto"
    """``auto`` (a GPU when one is visible), ``cuda`` (there must be one), ``cpu`` (certify for the CPU alone)."""
    nonce: str = ""
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    run: str | None = None
    run_timeout: float = 300.0
    timeout_scale: float = 1.0
    started: float | None = None
    """Seconds since the epoch from which the run's time counts; None: from the making of the Run."""
    extra: dict[str, Any] = field(default_factory=dict)
    """Passed to checks as ``ctx.options``."""


def suite_digest() -> str:
    """SHA-256 of the zipapp we run from, or over the package's files in order: names the suite's exact code."""
    import hashlib

    path, _ = package_root()
    if os.path.isfile(path):
        with open(path, "rb") as file:
            return "sha256:" + hashlib.sha256(file.read()).hexdigest()
    from .pack import source_digest

    return source_digest()


# --- the side of the runner ---------------------------------------------------------------------------------------


def judge_end(done: Finished, key: bytes, check: Check, timeout: float) -> dict[str, Any]:
    """The result of a finished process: its own frame if there is exactly one, else what its end tells."""
    values, refused = unframe(key, done.result)
    output = done.stderr + "\n" + done.stdout
    result: dict[str, Any]
    if done.timed_out:
        result = asdict(
            failed(
                f"no answer within {timeout:.0f} s; it was killed",
                hint_for(output) or _hang_hint(check),
                {"timeout_s": timeout},
            )
        )
    elif done.fork_bomb:
        result = asdict(failed("it started processes without end; all of them were killed", "see its output"))
    elif done.signal is not None:
        name = _signal_name(done.signal)
        cause, hint = SIGNAL_HINTS.get(done.signal, (f"ended by {name}", "its last words are in its output"))  # type: ignore[call-overload]
        if done.out_of_memory:
            cause = "the kernel's out-of-memory killer ended it"
            hint = "give the container more memory (docker run --memory), or a smaller batch"
        result = asdict(failed(f"crashed with {name}: {cause}", hint_for(output) or hint, {"signal": name}))
    elif len(values) != 1:
        what = "gave no result" if not values else f"gave {len(values)} results"
        result = asdict(
            failed(
                f"the process {what} and ended with {done.exit_code}",
                hint_for(output) or "something in it ended the interpreter; its last words are in its output",
                {"exit_code": done.exit_code},
            )
        )
    else:
        result = values[0]
    if refused:
        result["measured"] = {**result["measured"], "forged_lines": refused}
        if result["status"] == PASS:
            result.update(
                status=FAIL,
                reason=f"{refused} lines on the result channel were not ours: the code under test wrote to it",
                hint="do not trust this image; run it on a machine you can watch",
            )
    if result["status"] == PASS:
        trap = find_trap(output, fatal_only=True)
        if trap is not None:
            result.update(status=FAIL, reason=f"it computed, but its output says: {trap.cause}", hint=trap.hint)
        elif done.leftovers:
            result.update(
                status=FAIL,
                reason=f"it left processes running: {', '.join(done.leftovers)}",
                hint="workers that outlive their parent keep GPU memory; join them, or run with --init",
            )
    if done.out_of_memory and result["status"] in (FAIL, ERROR) and done.signal is None:
        result["reason"] = f"{result.get('reason')}; the kernel's out-of-memory killer struck meanwhile"
        result["hint"] = "give the container more memory (docker run --memory), or fewer workers"
    if done.leftovers:
        result["leftovers"] = done.leftovers
    if done.zombies:
        result["zombies_reaped"] = done.zombies
        if result["status"] == PASS and not result.get("reason"):
            result["reason"] = f"it left dead children uncollected ({done.zombies}); they were reaped"
            result["hint"] = "in a container whose process 1 does not reap, they pile up: docker run --init"
    if done.unkillable:
        result["unkillable"] = True
        result["hint"] = (
            "the process hangs in the kernel (state D): the driver or a disk does not answer; return the server"
        )
    if result["status"] != PASS and result["status"] != SKIP:
        result["output"] = {"stdout": done.stdout[-OUTPUT_KEPT:], "stderr": done.stderr[-OUTPUT_KEPT:]}
        if not result.get("hint"):
            result["hint"] = hint_for(f"{result.get('reason')}\n{output}")
    result["seconds"] = round(done.seconds, 3)
    return result


def _hang_hint(check: Check) -> str:
    if check.id.startswith("dist."):
        return "a collective never completed: NCCL_DEBUG=INFO names the link; try NCCL_P2P_DISABLE=1"
    return "it hung: a deadlocked worker, an unreachable mount, or a GPU that does not answer (see dmesg for Xid)"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class NoRoom(RuntimeError):
    """There is nowhere to write; the message says what to do."""


def work_folder() -> str:
    """A new temporary folder: where Python finds one, else in /dev/shm (read-only containers). NoRoom if none."""
    for base in (None, "/dev/shm"):
        try:
            return tempfile.mkdtemp(prefix="gpuimg-suite-", dir=base)
        except OSError:
            continue
    raise NoRoom("no folder can be written here; start the container with --tmpfs /tmp, or set TMPDIR")


class Run:
    """One run of the suite; ``lines`` is the document so far."""

    def __init__(self, options: Options, emit: Callable[[dict[str, Any]], None] | None = None) -> None:
        self.options = options
        self.nonce = options.nonce or secrets.token_hex(16)
        self.lines: list[str] = []
        self.results: dict[str, dict[str, Any]] = {}
        self.environment: dict[str, Any] = {}
        self.emit = emit or (lambda value: None)
        self.started = options.started or time.time()
        self.workdir = work_folder()
        self.framework: str | None = None
        self.device = "cpu"
        self.samples: str | None = None
        self.spare: frozenset[int] = frozenset()
        self.windows: list[dict[str, Any]] = []

    def write(self, kind: str, value: dict[str, Any]) -> None:
        line = write_line(kind, value)
        self.lines.append(line)
        self.emit({"line": kind, **value})

    def probe(self) -> None:
        """Find out where we are. GPU facts come from a forked process: a driver that hangs must not take us along."""
        from .environment import frameworks_here, gpu_facts, platform_facts

        key = secrets.token_bytes(32)

        def child(read_fd: int, write_fd: int) -> None:
            os.write(write_fd, frame(key, gpu_facts()))

        done = run_supervised(child, b"", 30.0)
        values, _ = unframe(key, done.result)
        facts = values[0] if len(values) == 1 else {"gpus": [], "nvml_error": "the driver did not answer"}
        frameworks = frameworks_here()
        wanted = self.options.framework
        self.framework = wanted if wanted in frameworks else (None if wanted else next(iter(frameworks), None))
        self.device = "cuda" if facts["gpus"] and self.options.device != "cpu" else "cpu"
        self.environment = {
            "schema": SCHEMA,
            "suite_version": SUITE_VERSION,
            "suite_digest": suite_digest(),
            "nonce": self.nonce,
            "profile": self.options.profile_name,
            "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.started)),
            "framework": self.framework,
            "framework_asked": wanted,
            "frameworks": frameworks,
            "device": self.device,
            "device_asked": self.options.device,
            **platform_facts(),
            **facts,
        }
        self.write("environment", self.environment)

    def plan(self) -> list[tuple[Check, bool]]:
        """The checks of this run, in order, each with whether it is required. Raises BadProfile for unknown ids."""
        from .profiles import BadProfile

        checks = all_checks()
        options = self.options
        for pattern in (*options.only, *options.skip):
            if not any(fnmatchcase(check_id, pattern) for check_id in checks):
                raise BadProfile(f"no check is called {pattern!r}")
        chosen = []
        for check in checks.values():
            wants = options.profile.wants(check.id)
            if options.only:
                if not _matches(check.id, options.only):
                    continue
                wants = True  # picked by hand: its failure is the answer
            if wants is None or _matches(check.id, options.skip):
                continue
            chosen.append((check, wants))
        return chosen

    def missing_need(self, check: Check) -> tuple[str, bool] | None:
        """``(reason, applicable)`` when the check cannot be made here."""
        if check.frameworks is not None and self.framework not in check.frameworks:
            return f"is for {', '.join(check.frameworks)}; this run is about {self.framework}", False
        for need in check.needs:
            if need in ("framework", "gpu-framework") and self.framework is None:
                asked = self.options.framework
                return (f"{asked} is not installed" if asked else "no framework is installed"), True
            if need in ("gpu", "gpu-framework", "multi-gpu") and self.device != "cuda":
                if self.options.device == "cpu":
                    return "the run is limited to the CPU", False
                return "no GPU is visible: " + str(self.environment.get("nvml_error", "none was found")), True
            if need == "multi-gpu" and len(self.environment["gpus"]) < 2:
                return "one GPU is visible; this needs two or more", True
            if need == "numpy":
                import importlib.util

                if importlib.util.find_spec("numpy") is None:
                    return "NumPy is not installed", True
        return None

    def run_check(self, check: Check, required: bool) -> dict[str, Any]:
        """Make one check and write its line."""
        missing = self.missing_need(check)
        if missing is not None:
            result = asdict(skipped(missing[0]))
            result["applicable"] = missing[1]
            result["seconds"] = 0.0
        else:
            result = self.spawn(check)
            if check.retry and result["status"] == FAIL:
                first = result
                result = self.spawn(check)
                result["first_attempt"] = {k: first[k] for k in ("status", "measured", "reason")}
        self.windows.extend(result.pop("windows", None) or [])
        line = {"id": check.id, "title": check.title, "required": required, **result}
        self.results[check.id] = line
        self.write("check", line)
        return line

    def spawn(self, check: Check) -> dict[str, Any]:
        """Run the check in its own process: forked when light, else in a new interpreter."""
        options = self.options
        timeout = options.profile.timeouts.get(check.id, check.timeout) * options.timeout_scale
        key = secrets.token_bytes(32)
        workdir = tempfile.mkdtemp(prefix=check.id + "-", dir=self.workdir)
        order = {
            "key": key.hex(),
            "check": check.id,
            "module": check.fn.__module__[len(__package__ or "") + 1 :],
            "profile": options.profile_name,
            "floors": options.profile.floors,
            "framework": self.framework,
            "device": self.device,
            "workdir": workdir,
            "nonce": self.nonce,
            "timeout": timeout,
            "spawned": time.time(),
            "facts": self.environment,
            "options": options.extra,
            "earlier": self.results if check.light else {},
            "samples": self.samples,
        }
        if check.light:
            order["options"] = {**options.extra, "windows": self.windows}

        def light(read_fd: int, write_fd: int) -> None:
            child_main(read_fd, write_fd)

        def fresh(read_fd: int, write_fd: int) -> None:
            os.set_inheritable(read_fd, True)
            os.set_inheritable(write_fd, True)
            argv = [*interpreter_argv(), "--one", f"{read_fd},{write_fd}"]
            os.execvp(argv[0], argv)

        try:
            message = json.dumps(order).encode("utf-8")
            done = run_supervised(light if check.light else fresh, message, timeout + 1.0, spare=self.spare)
        finally:
            shutil.rmtree(workdir, ignore_errors=True)
        return judge_end(done, key, check, timeout)

    def summarise(self) -> dict[str, Any]:
        """Counts, verdict and what decided it; see :func:`verdict_of`."""
        lines = list(self.results.values())
        counts = {status: sum(1 for line in lines if line["status"] == status) for status in (PASS, FAIL, SKIP, ERROR)}
        verdict, reasons = verdict_of(
            lines, self.device, self.options.device, self.framework, chosen_by_hand=bool(self.options.only)
        )
        spent = sum(line["seconds"] - line.get("startup_seconds", 0.0) for line in lines)
        wall = time.time() - self.started
        return {
            "verdict": verdict,
            "reasons": reasons,
            "device": self.device,
            "counts": counts,
            "nonce": self.nonce,
            "seconds": round(wall, 3),
            "overhead_seconds": round(max(0.0, wall - spent), 3),
            "budget_s": self.options.profile.budget_s,
            "within_budget": wall <= self.options.profile.budget_s,
            "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "exit": {"pass": PASSED, "fail": FAILED, "cannot-tell": CANNOT_TELL}[verdict],
            "seal": seal(self.nonce, self.lines),
        }

    def go(self) -> dict[str, Any]:
        """The whole run; returns the summary."""
        sampler = None
        try:
            chosen = self.plan()
            self.probe()
            become_reaper()
            unpack(os.path.join(self.workdir, "suite"))
            if self.device == "cuda" and any(check.id.startswith("mon.") for check, _ in chosen):
                from .sampler import Sampler

                sampler = Sampler(os.path.join(self.workdir, "samples.jsonl"))
                self.samples, self.spare = sampler.path, frozenset({sampler.pid})
            for check, required in chosen:
                self.run_check(check, required)
            if self.options.run:
                self.user_check(self.options.run)
            summary = self.summarise()
            self.write("summary", summary)
            return summary
        finally:
            _UNPACKED.clear()
            if sampler is not None:
                sampler.stop()
            shutil.rmtree(self.workdir, ignore_errors=True)

    def user_check(self, command: str) -> None:
        """The user's own command as a required check ``user.run``: passes when it exits 0 and prints no known trap."""
        check = Check(
            "user.run",
            "Your own command",
            "it runs here",
            "sh -c in the directory the suite was started in",
            "exit status 0, no known fault on its output",
            "you",
            self.options.run_timeout,
            (),
            None,
            lambda ctx: skipped("not called"),
            False,
            False,
        )

        def child(read_fd: int, write_fd: int) -> None:
            os.close(read_fd)
            os.close(write_fd)
            os.execvp("/bin/sh", ["sh", "-c", command])

        done = run_supervised(child, b"", check.timeout, spare=self.spare)
        measured = {"command": command, "exit_code": done.exit_code}
        if done.exit_code == 0 and not done.timed_out and not done.fork_bomb:
            trap = find_trap(done.stderr + done.stdout, fatal_only=True)
            outcome = (
                failed(f"exit status 0, but its output says: {trap.cause}", trap.hint, measured)
                if trap
                else Outcome(PASS, measured)
            )
        elif done.signal is None and not done.timed_out and not done.fork_bomb:
            # a shell reports a command that a signal ended as 128 + its number
            shell = SIGNAL_HINTS.get((done.exit_code or 0) - 128)  # type: ignore[call-overload]
            reason, hint = f"exit status {done.exit_code}", "its output is below"
            if shell is not None:
                reason, hint = f"{reason}: {_signal_name((done.exit_code or 0) - 128)}, {shell[0]}", shell[1]
            if done.out_of_memory:
                reason, hint = f"{reason}: the kernel's out-of-memory killer ended it", SIGNAL_HINTS[signal.SIGKILL][1]
            outcome = failed(reason, hint_for(done.stderr + done.stdout) or hint, measured)
        else:
            outcome = Outcome(**{k: v for k, v in judge_end(done, b"-", check, check.timeout).items() if k in _FIELDS})
            outcome = failed(outcome.reason or "failed", outcome.hint, {**outcome.measured, **measured})
        line = {
            "id": check.id,
            "title": check.title,
            "required": True,
            **asdict(outcome),
            "seconds": round(done.seconds, 3),
            "output": {"stdout": done.stdout[-OUTPUT_KEPT:], "stderr": done.stderr[-OUTPUT_KEPT:]},
        }
        if done.leftovers:
            line["leftovers"] = done.leftovers
        self.results[check.id] = line
        self.write("check", line)


_FIELDS = ("status", "measured", "expected", "reason", "hint", "applicable")


def _matches(check_id: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(check_id, pattern) for pattern in patterns)


def verdict_of(
    lines: Iterable[dict[str, Any]],
    device: str,
    device_asked: str,
    framework: str | None,
    *,
    chosen_by_hand: bool = False,
) -> tuple[str, list[str]]:
    """``(verdict, reasons)`` of a run.

    ``fail`` when a required check failed or broke. ``cannot-tell`` when a required check that has a meaning here was
    skipped, when nothing ran, when there is no framework, or when there is no GPU and the run was not limited to the
    CPU. Else ``pass``: a skip never counts as passed. ``chosen_by_hand``: the user picked the checks (``--only``), so
    what they need speaks for itself.
    """
    rows = list(lines)
    broken = [row for row in rows if row["required"] and row["status"] in (FAIL, ERROR)]
    if broken:
        return "fail", [f"{row['id']}: {row.get('reason')}" for row in broken]
    reasons = []
    if device != "cuda" and device_asked != "cpu" and not chosen_by_hand:
        reasons.append(
            "no GPU is visible here, so nothing about the GPU was proved; hand the container a GPU "
            "(--gpus all, --runtime=nvidia or --device nvidia.com/gpu=all), or ask for --device cpu"
        )
    if framework is None and not chosen_by_hand:
        reasons.append("no framework to test was found; install one, or start the suite with the Python that has it")
    for row in rows:
        if row["required"] and row["status"] == SKIP and row.get("applicable", True):
            reasons.append(f"{row['id']} was not made: {row.get('reason')}")
    if not any(row["status"] == PASS for row in rows):
        reasons.append("no check passed")
    return ("cannot-tell" if reasons else "pass"), reasons
