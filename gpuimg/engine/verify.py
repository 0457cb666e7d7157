"""Run the verification suite on an image and bring back evidence that the image cannot have made up by printing.

The unit of work is (image, suite, GPU) → ``Evidence``; this module does it on a Docker host. What protects it:

- a random nonce goes in by standard input; the suite seals its document with it, so forged, cut or repeated lines show;
- random challenges that follow from the nonce are recomputed here;
- the host watches the GPUs with NVML from outside;
- which checks the profile requires is read from our copy of the suite, not from what came out of the container.

A program inside that takes over the Python interpreter itself can still lie about a measurement; it cannot invent GPU
work that the host does not see.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuimg.engine import image as images
from gpuimg.engine.client import connect, is_local
from gpuimg.engine.container import HOME, CannotStart, Container, Ended, Limits, default_limits, sweep
from gpuimg.engine.gpu_access import GpuAccess, find_gpu_access
from gpuimg.engine.registry import digest_of
from gpuimg.engine.watch import GpuWatch
from gpuimg.errors import BadInput
from gpuimg.nouns import CheckResult, Evidence

if TYPE_CHECKING:
    import docker

Progress = Callable[[dict[str, Any]], None]
"""Called with ``{"event": "status", "text": …}`` and with ``{"event": "check", …the suite's line…}``."""

SUITE_FILE = "gpuimg-suite.pyz"
CHALLENGE = "compute.challenge"
_MAX_STDOUT = 64 << 20
_STDIN_BOOT = (
    "import os,sys;n=sys.stdin.buffer.readline();d=sys.stdin.buffer.read();p='/tmp/" + SUITE_FILE + "';"
    "f=open(p,'wb');f.write(d);f.close();r,w=os.pipe();os.write(w,n);os.close(w);os.dup2(r,0);"
    "os.execv(sys.executable,[sys.executable,'-E','-s',p]+sys.argv[1:])"
)
"""Delivery by standard input: nonce line first, then the zipapp; it is written to /tmp and started from there."""


@dataclass(frozen=True)
class SuiteChoice:
    """What is asked of the suite. ``timeout`` in seconds for the whole run; None: four times the profile's budget."""

    profile: str
    framework: str | None = None
    only: tuple[str, ...] = ()
    run: str | None = None
    profile_file: Path | None = None
    timeout: float | None = None
    timeout_scale: float = 1.0

    def arguments(self, device: str, profile_file: str | None) -> list[str]:
        """Command line of the suite."""
        out = ["--json", "--nonce", "-", "--profile", self.profile, "--device", device]
        out += ["--profile-file", profile_file] if profile_file else []
        out += ["--framework", self.framework] if self.framework else []
        for pattern in self.only:
            out += ["--only", pattern]
        out += ["--run", self.run] if self.run else []
        out += ["--timeout-scale", str(self.timeout_scale)] if self.timeout_scale != 1.0 else []
        return out


@dataclass(frozen=True)
class Profile:
    """What our copy of the suite says about the profile."""

    required: tuple[str, ...]
    budget: float


def run_suite(
    image_ref: str,
    *,
    profile: str,
    gpus: str = "auto",
    timeout: float | None = None,
    network: str = "none",
    framework: str | None = None,
    only: Sequence[str] = (),
    run: str | None = None,
    profile_file: Path | None = None,
    helper: str | None = None,
    timeout_scale: float = 1.0,
    limits: Limits | None = None,
    client: docker.DockerClient | None = None,
    progress: Progress = lambda _: None,
) -> Evidence:
    """Verify an image in a container of its own.

    ``image_ref``: name, name@digest or image id; pulled when the engine lacks it. ``gpus``: auto, all, none, or
    indices/UUIDs. ``helper``: an image with Python that stands in for host and driver checks when ``image_ref`` has
    none (default ``GPUIMG_HELPER_IMAGE``).

    A hang, crash or forged output is not an exception: it comes back as a check ``suite.run`` with status 'error'.

    Raises:
        BadInput: unknown profile, check, framework or network. CannotTell: GPUs asked for and none there, or an image
        for another architecture. EnvironmentFault: no engine, no image, the container cannot be started.
    """
    choice = SuiteChoice(profile, framework, tuple(only), run, profile_file, timeout, timeout_scale)
    wanted = read_profile(choice)
    run_id = secrets.token_hex(8)
    engine = client or connect()
    with _terminate_as_interrupt():
        for left in sweep(engine):
            progress({"event": "status", "text": f"removed container {left}, left behind by a killed run"})
        image = images.find_image(engine, image_ref, progress=lambda t: progress({"event": "status", "text": t}))
        access = find_gpu_access(engine, gpus)
        progress({"event": "status", "text": f"GPU access: {access.kind} ({access.reason})"})
        extra = [images.probe_entrypoint(engine, image, run_id=run_id)] if not only else []
        pythons = images.find_pythons(engine, image, run_id=run_id)
        python = images.choose_python(pythons, framework)
        target = image
        if python is None:
            extra.append(_no_python(image, helper))
            found = _helper(engine, helper, run_id)
            if found is None:
                return _nothing_ran(image, access, choice, wanted, extra, network)
            target, python = found
            progress({"event": "status", "text": f"no Python in the image: checking the host with {target.reference}"})
        allowed = limits or default_limits(int(engine.info().get("MemTotal") or 0))
        return _run(
            engine, image, target, python, access, choice, wanted, network, allowed, run_id, extra,
            progress,
        )  # fmt: skip


def verify_here(
    *,
    profile: str,
    gpus: str = "auto",
    timeout: float | None = None,
    framework: str | None = None,
    only: Sequence[str] = (),
    run: str | None = None,
    profile_file: Path | None = None,
    python: str | None = None,
    timeout_scale: float = 1.0,
    progress: Progress = lambda _: None,
) -> Evidence:
    """Run the suite on this machine or in this container, without an engine.

    ``python``: interpreter to test with; by default the first one here that has the framework.

    Raises:
        BadInput: unknown profile, check or framework, or no such interpreter.
    """
    from gpuimg.suite.pack import build_zipapp

    choice = SuiteChoice(profile, framework, tuple(only), run, profile_file, timeout, timeout_scale)
    wanted = read_profile(choice)
    nonce, started = secrets.token_hex(16), _now()
    with tempfile.TemporaryDirectory(prefix="gpuimg-") as folder, _terminate_as_interrupt():
        file = Path(folder) / SUITE_FILE
        digest = build_zipapp(file)
        device = "cpu" if gpus == "none" else "auto"
        environment = dict(os.environ)
        if gpus not in ("auto", "all", "none"):
            environment["CUDA_VISIBLE_DEVICES"] = gpus
        place = str(profile_file.resolve()) if profile_file is not None else None
        command = [python or _python_here(framework), "-E", "-s", str(file), *choice.arguments(device, place)]
        document, ended = _stream_here(command, nonce, environment, _seconds(choice, wanted), progress)
    read = read_output(document, nonce, ended)
    return _evidence(
        read, nonce, choice, wanted, digest, image=None, injection="bare", started=started, extra=[],
        host={"python": command[0], "watch": {"available": False, "reason": "no container to watch from outside"}},
    )  # fmt: skip


def suite_digest() -> str:
    """Digest of the suite as it would be delivered now; part of the key under which results are kept."""
    from gpuimg.suite.pack import source_digest

    return source_digest()


def read_profile(choice: SuiteChoice) -> Profile:
    """Required checks and time budget of a profile, from our own copy of the suite.

    Raises:
        BadInput: unknown profile or check id, or a profile file that cannot be read.
    """
    from fnmatch import fnmatchcase

    from gpuimg.suite.profiles import BadProfile, load_profile
    from gpuimg.suite.registry import FRAMEWORKS, all_checks

    known = all_checks()
    file = str(choice.profile_file) if choice.profile_file is not None else None
    try:
        profile = load_profile(choice.profile, known, file)
    except BadProfile as error:
        raise BadInput(str(error)) from error
    framework = (choice.framework or "").replace("-", "_")
    if framework and framework not in FRAMEWORKS:
        raise BadInput.at("--framework", None, f"no framework {framework!r}", allowed=FRAMEWORKS, value=framework)
    for pattern in choice.only:
        if not any(fnmatchcase(check_id, pattern) for check_id in known):
            raise BadInput.at("--only", None, f"no check {pattern!r}", allowed=known, value=pattern)
    required = [c for c in known if profile.wants(c)]
    return Profile(tuple(required) + (("user.run",) if choice.run else ()), profile.budget_s)


@dataclass(frozen=True)
class Read:
    """What came out of a run. ``reason`` says why it cannot be trusted or is not whole; None when it is."""

    environment: dict[str, Any]
    checks: tuple[CheckResult, ...]
    summary: dict[str, Any]
    lines: int
    noise: int
    """Lines on standard output that are not ours: banners, prints."""
    reason: str | None
    hint: str | None = None


def read_output(lines: Sequence[str], nonce: str, ended: Ended) -> Read:
    """Read and authenticate standard output of a run; pure.

    Beyond the seal: exactly one environment line and one summary, nothing of ours after it, and an end that fits.
    """
    from gpuimg.suite.document import BadDocument, read_document

    kinds = [_kind(line) for line in lines]
    ours = [k for k in kinds if k is not None]
    noise = len(kinds) - len(ours)
    try:
        document = read_document("\n".join(lines), nonce)
    except BadDocument as error:
        environment, checks = _salvage(lines, nonce)
        why, hint = _why_broken(ended, str(error), checks)
        return Read(environment, checks, {}, len(ours), noise, why, hint)
    checks = tuple(_result(c) for c in document.checks)
    reason = None
    if ours.count("environment") != 1 or ours.count("summary") != 1 or ours[-1] != "summary":
        reason = "forged output: lines in the suite's form that the suite did not write"
    elif ours.count("check") != len(checks):
        reason = "forged output: check lines outside the sealed document"
    elif ended.exit_code != document.summary.get("exit"):
        reason = f"the run said it would end with {document.summary.get('exit')}, it ended with {ended.exit_code}"
    return Read(document.environment, checks, document.summary, len(ours), noise, reason)


def check_challenges(checks: Sequence[CheckResult], nonce: str) -> list[dict[str, Any]]:
    """Recompute the random challenge; what the suite itself says about it does not count."""
    from gpuimg.suite.challenge import expected

    out = []
    for check in checks:
        if check.id != CHALLENGE or check.status == "skip":
            continue
        answer = {"check": check.id, "ok": check.measured.get("digest") == expected(nonce, check.id)}
        out.append({**answer, "result_device": check.measured.get("result_device")})
    return out


def _run(
    engine: docker.DockerClient,
    image: images.Image,
    target: images.Image,
    python: images.Python,
    access: GpuAccess,
    choice: SuiteChoice,
    wanted: Profile,
    network: str,
    limits: Limits,
    run_id: str,
    extra: list[CheckResult],
    progress: Progress,
) -> Evidence:
    from gpuimg.suite.pack import zipapp_bytes

    content, nonce, started = zipapp_bytes(), secrets.token_hex(16), _now()
    files = {SUITE_FILE: content}
    place = None
    if choice.profile_file is not None:
        files["profile.json"] = choice.profile_file.read_bytes()
        place = f"{HOME}/profile.json"
    device = "cpu" if access.kind == "none" else "auto"
    arguments = choice.arguments(device, place)
    watch = GpuWatch(local=is_local(engine))
    lines: list[str] = []
    stderr: list[str] = []
    size = 0
    options: dict[str, Any] = {
        "access": access, "network": network, "limits": limits, "run_id": run_id,
        "timeout": _seconds(choice, wanted),
    }  # fmt: skip
    with contextlib.ExitStack() as stack:
        container, delivery = _deliver(stack, engine, target, python, arguments, nonce, files, options)
        if access.kind != "none":
            watch.start()
            watch.follow(container.id)
        try:
            for line in container.stream():
                size += len(line.text) + 1
                if line.stream == "stderr":
                    stderr = [*stderr[-49:], line.text[:2000]]
                elif size < _MAX_STDOUT:
                    lines.append(line.text)
                    if _kind(line.text) == "check":
                        progress({"event": "check", **json.loads(line.text)})
            ended = container.ended()
        finally:
            seen = watch.stop() if access.kind != "none" else {"available": False, "reason": "no GPU was given"}
        memlock = container.memlock
    ended.stderr_tail = stderr[-20:]
    read = read_output(lines, nonce, ended)
    version: dict[str, Any] = engine.version()
    host = {
        "engine": {"name": "docker", "version": version.get("Version"), "api": version.get("ApiVersion")},
        "access": access.to_json(),
        "network": network,
        "delivery": delivery,
        "python": {"path": python.path, "version": ".".join(map(str, python.version))},
        "image": {"reference": image.reference, "id": image.id, "digest": image.digest},
        "limits": {
            "memory": limits.memory, "shm": limits.shm, "tmp": limits.tmp, "pids": limits.pids, "memlock": memlock,
        },
        "watch": seen,
        "stderr": ended.stderr_tail,
    }  # fmt: skip
    if target is not image:
        host["helper"] = {"reference": target.reference, "id": target.id}
    return _evidence(
        read, nonce, choice, wanted, digest_of(content), image=image, injection=access.kind, started=started,
        extra=extra, host=host,
    )  # fmt: skip


def _deliver(
    stack: contextlib.ExitStack,
    engine: docker.DockerClient,
    target: images.Image,
    python: images.Python,
    arguments: list[str],
    nonce: str,
    files: dict[str, bytes],
    options: dict[str, Any],
) -> tuple[Container, str]:
    """The created container and how the suite got in: upload, else a read-only bind, else standard input."""
    suite = [python.path, "-E", "-s", f"{HOME}/{SUITE_FILE}"]
    hello = nonce.encode() + b"\n"
    ways = os.environ.get("GPUIMG_DELIVERY", "upload,bind,stdin").split(",")
    last: Exception | None = None
    for way in ways:
        try:
            if way == "upload":
                made = Container(
                    engine, target.id, entrypoint=suite[:1], command=[*suite[1:], *arguments], files=files,
                    stdin=hello, **options,
                )  # fmt: skip
            elif way == "bind" and is_local(engine):
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gpuimg-")))
                folder.chmod(0o755)
                for name, content in files.items():
                    (folder / name).write_bytes(content)
                    (folder / name).chmod(0o555)
                made = Container(
                    engine, target.id, entrypoint=suite[:1], command=[*suite[1:], *arguments], delivery="bind",
                    bind_from=folder, stdin=hello, **options,
                )  # fmt: skip
            elif way == "stdin" and set(files) == {SUITE_FILE}:
                made = Container(
                    engine, target.id, entrypoint=suite[:1], command=["-E", "-s", "-c", _STDIN_BOOT, *arguments],
                    delivery="stdin", stdin=hello + files[SUITE_FILE], **options,
                )  # fmt: skip
            else:
                continue
            return stack.enter_context(made), way
        except CannotStart as error:
            last = error
    raise last or CannotStart(f"no way to bring the suite into the container; tried {', '.join(ways)}")


def _evidence(
    read: Read,
    nonce: str,
    choice: SuiteChoice,
    wanted: Profile,
    digest: str,
    *,
    image: images.Image | None,
    injection: str,
    started: str,
    extra: list[CheckResult],
    host: dict[str, Any],
) -> Evidence:
    reason, hint = read.reason, read.hint
    if reason is None and read.environment.get("suite_digest") != digest:
        reason = f"the suite that ran is {read.environment.get('suite_digest')}, {digest} was sent"
    checks = [*extra, *read.checks]
    if reason is not None:
        checks.append(
            CheckResult("suite.run", "the suite's own output is whole and its own", "error", 0.0,
                        {"lines": read.lines, "other_lines": read.noise}, reason=reason, hint=hint)
        )  # fmt: skip
    authentic: dict[str, Any] = {"ok": reason is None, "frames": read.lines, "other_lines": read.noise}
    if reason is not None:
        authentic["reason"] = reason
    return Evidence(
        environment=read.environment,
        checks=tuple(checks),
        summary=read.summary,
        suite_version=str(read.environment.get("suite_version", "unknown")),
        suite_digest=digest,
        profile=choice.profile,
        image_digest=image.digest if image is not None else None,
        injection=injection,
        started=started,
        finished=_now(),
        host={
            "authentic": authentic,
            "challenges": check_challenges(read.checks, nonce),
            "required": list(wanted.required),
            "only": list(choice.only),
            **host,
        },
    )


def _nothing_ran(
    image: images.Image,
    access: GpuAccess,
    choice: SuiteChoice,
    wanted: Profile,
    extra: list[CheckResult],
    network: str,
) -> Evidence:
    now = _now()
    read = Read({}, (), {}, 0, 0, None)
    evidence = _evidence(
        read, "", choice, wanted, suite_digest(), image=image, injection=access.kind, started=now, extra=[],
        host={"access": access.to_json(), "network": network, "watch": {"available": False, "reason": "nothing ran"},
              "image": {"reference": image.reference, "id": image.id, "digest": image.digest}},
    )  # fmt: skip
    host = {**evidence.host, "authentic": {"ok": False, "frames": 0, "reason": "no suite ran: no Python in the image"}}
    return Evidence(**{**evidence.__dict__, "checks": tuple(extra), "host": host})


def _no_python(image: images.Image, helper: str | None) -> CheckResult:
    oldest = ".".join(map(str, images.OLDEST_PYTHON))
    stand_in = helper or os.environ.get("GPUIMG_HELPER_IMAGE")
    return CheckResult(
        "image.python", "the image has a Python the suite can run in", "skip", 0.0, {"image": image.reference},
        reason=f"no usable Python >= {oldest} in the image, so no framework in it can be verified"
        + ("" if stand_in else "; host and driver were not checked either: no helper image"),
        hint="GPUIMG_PYTHON names an interpreter in an unusual place; GPUIMG_HELPER_IMAGE an image with Python "
        "for the host and driver checks",
    )  # fmt: skip


def _helper(engine: docker.DockerClient, helper: str | None, run_id: str) -> tuple[images.Image, images.Python] | None:
    name = helper or os.environ.get("GPUIMG_HELPER_IMAGE")
    if name is None:
        return None
    image = images.find_image(engine, name)
    pythons = images.find_pythons(engine, image, run_id=run_id)
    if not pythons:
        raise BadInput(f"helper image {name} has no Python either")
    return image, pythons[0]


def _seconds(choice: SuiteChoice, wanted: Profile) -> float:
    """Time for the whole run: the profile's budget is a goal for a healthy host, this is where we stop waiting."""
    return choice.timeout or max(300.0, 4 * wanted.budget * choice.timeout_scale)


def _kind(line: str) -> str | None:
    """'environment', 'check' or 'summary' for a line in the suite's form, None for any other."""
    if not line.startswith("{"):
        return None
    try:
        value = json.loads(line)
    except ValueError:
        return None
    kind = value.get("line") if isinstance(value, dict) else None
    return kind if kind in ("environment", "check", "summary") else None


def _result(line: dict[str, Any]) -> CheckResult:
    known = {"id", "title", "status", "seconds", "measured", "expected", "reason", "hint", "applicable", "line"}
    more = {k: v for k, v in line.items() if k not in known and k != "required"}
    measured = {**(line.get("measured") or {}), **({"also": more} if more else {})}
    status = line.get("status")
    return CheckResult(
        id=str(line.get("id")),
        title=str(line.get("title")),
        status=status if status in ("pass", "fail", "skip") else "error",
        seconds=float(line.get("seconds") or 0.0),
        measured=measured,
        expected=line.get("expected") or {},
        reason=line.get("reason"),
        hint=line.get("hint"),
        applicable=bool(line.get("applicable", True)),
    )


def _salvage(lines: Sequence[str], nonce: str) -> tuple[dict[str, Any], tuple[CheckResult, ...]]:
    """What a broken document still tells a person; never used as proof."""
    environment: dict[str, Any] = {}
    checks = []
    for line in lines:
        kind = _kind(line)
        if kind is None:
            continue
        value = json.loads(line)
        if kind == "environment" and value.get("nonce") == nonce:
            environment = value
        elif kind == "check" and environment:
            checks.append(_result(value))
    return environment, tuple(checks)


def _why_broken(ended: Ended, said: str, checks: Sequence[CheckResult]) -> tuple[str, str | None]:
    last = f" after {checks[-1].id}" if checks else " before the first check"
    tail = next((t for t in reversed(ended.stderr_tail) if t.strip()), "")
    if ended.timed_out:
        return f"it hung{last} and was stopped after {ended.seconds:.0f} s", "a longer --timeout, if it is only slow"
    if ended.oom_killed:
        return f"killed for memory{last}", "the container's memory limit, or the machine's memory, was reached"
    if "no environment line" in said and ended.exit_code == 0:
        return "the image answered, but not with the suite's output: its Python does not run what it is given", None
    if ended.exit_code not in (0, 1, 3):
        return f"the suite ended{last} with exit code {ended.exit_code}: {tail or said}", None
    return said, None


def _stream_here(
    command: list[str], nonce: str, environment: dict[str, str], timeout: float, progress: Progress
) -> tuple[list[str], Ended]:
    import time

    began = time.monotonic()
    lines: list[str] = []
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
        env=environment, start_new_session=True,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        late = threading.Event()

        def stop() -> None:
            late.set()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

        errors: list[str] = []
        pipe = process.stderr
        reader = threading.Thread(target=lambda: errors.extend(pipe), daemon=True)
        reader.start()
        timer = threading.Timer(timeout, stop)
        timer.start()
        try:
            process.stdin.write(nonce + "\n")
            process.stdin.close()
            for raw in process.stdout:
                line = raw.rstrip("\n")
                lines.append(line)
                if _kind(line) == "check":
                    progress({"event": "check", **json.loads(line)})
            process.wait()
        except BaseException:
            stop()
            raise
        finally:
            timer.cancel()
        reader.join(timeout=5)
    ended = Ended(process.returncode, late.is_set(), False, time.monotonic() - began)
    ended.stderr_tail = [line.rstrip("\n") for line in errors[-20:]]
    return lines, ended


def _python_here(framework: str | None) -> str:
    """The interpreter of this machine to test with: the first with the framework, else the one we run on."""
    script = images.find_script()
    try:
        found = subprocess.run(script, capture_output=True, text=True, timeout=120, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return sys.executable
    chosen = images.choose_python(images.read_pythons(found.splitlines()), framework)
    return chosen.path if chosen is not None and (chosen.modules or framework) else sys.executable


@contextlib.contextmanager
def _terminate_as_interrupt() -> Iterator[None]:
    """SIGTERM ends like Ctrl-C, so that containers are removed on the way out; only possible in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
