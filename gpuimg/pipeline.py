"""The flow, in reading order: matrix file → cells → plans → locks → Dockerfiles → images → evidence → certificates.

Nothing here decides or measures; each step is one call into the room that does. Results are keyed by content, so a
killed run picks up where it was and an unchanged cell is not done twice.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from fnmatch import fnmatch
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, TypeVar

import platformdirs

from gpuimg.certify import (
    BUNDLE_SUFFIX,
    BUNDLE_TYPE,
    bundle_annotations,
    bundle_of,
    judge,
    load_policy,
    make_certificate,
    open_signer,
    sign,
)
from gpuimg.certify.certificate import parse_time
from gpuimg.dockerfile import Rendered, bake_file, render_cell
from gpuimg.dockerfile.pythons import pythons_of, systems, systems_with
from gpuimg.dockerfile.render import image_tag, public_base
from gpuimg.engine.bases import provide_base
from gpuimg.engine.build import stop_builds
from gpuimg.engine.client import connect, is_local
from gpuimg.engine.container import kill_running
from gpuimg.engine.gpu_access import find_gpu_access
from gpuimg.engine.publish import provide_digest
from gpuimg.engine.reference import parse_reference
from gpuimg.engine.registry import Repository
from gpuimg.engine.verify import run_suite, suite_digest
from gpuimg.errors import BadInput, EnvironmentFault, GpuimgError, nearest
from gpuimg.host.local import read_here
from gpuimg.knowledge import load
from gpuimg.knowledge.planning import Target
from gpuimg.layers.assembly import Assembler
from gpuimg.layers.lockfile import LockedWheel, Platform, read_lock
from gpuimg.layers.produce import Produced, Producer, layers_of, produce
from gpuimg.layers.resolve import lock_requirements
from gpuimg.matrix import Matrix, expand, load_matrix
from gpuimg.matrix.choose import choose_plan
from gpuimg.nouns import Cell, Evidence, Finding, Host, Plan
from gpuimg.report.entry import Entry, write_entry, write_text

State = Literal["certified", "unchanged", "failed", "cannot-tell", "refused", "error"]
Say = Callable[[str, str], None]
"""(cell id, what happens)."""

LOCK_HEADER = "# gpuimg lock for: "


@dataclass(frozen=True)
class Settings:
    """Options of a run, resolved once. Paths are used as given; nothing is read from the environment later."""

    matrix: Path
    only: tuple[str, ...] = ()
    registry: str | None = None
    out: Path = Path("dockerfiles")
    state: Path = Path(".gpuimg")
    cache: Path = field(default_factory=lambda: default_cache())
    producer: Producer = "stream"
    builder: str | None = None
    profile: str | None = None
    gpus: str = "auto"
    key: Path | None = None
    jobs: int = 2
    relock: bool = False
    reverify: bool = False


@dataclass(frozen=True)
class Outcome:
    """How one cell ended. ``reference`` is by digest; ``seconds`` per step."""

    cell: str
    state: State
    text: str
    reference: str | None = None
    tag: str | None = None
    scope: dict[str, Any] = field(default_factory=dict)
    certificate: str | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    bytes: dict[str, int] = field(default_factory=dict)
    hint: str | None = None
    exit_code: int | None = None
    """Of an 'error': bad input 2, cannot tell 3, environment 4."""

    def to_json(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if v not in (None, {}, ())}


def default_cache() -> Path:
    """``GPUIMG_CACHE``, else the user's cache folder."""
    return Path(os.environ.get("GPUIMG_CACHE") or platformdirs.user_cache_dir("gpuimg"))


# --- what to build ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """What a matrix file asks for, here: plans to build, and what is left out with the reason."""

    matrix: Matrix
    plans: tuple[Plan, ...]
    """Impossible cells are among them: see :func:`refusal`."""
    excluded: tuple[tuple[Cell, str], ...] = ()
    with_gpu: tuple[Cell, ...] = ()
    """Cells left out because no GPU is reached here."""
    notes: tuple[str, ...] = ()


def read_job(settings: Settings, cards: Callable[[], Sequence[Target]] = lambda: ()) -> Job:
    """Matrix file → plans. ``cards`` looks for the server's own cards; it is called when a row is ``only_with: gpu``.

    Raises:
        BadInput: the file is wrong, two rows become the same cell, or ``only`` matches no cell.
    """
    matrix = load_matrix(settings.matrix)
    expanded = expand(matrix, settings.matrix)
    own = tuple(cards()) if expanded.with_gpu else ()
    targets = [Target(t.gpu, t.driver) for t in matrix.targets]
    plans = [_on_system(choose_plan(cell, targets, load())) for cell in expanded.cells]
    if own:
        plans += [_on_system(choose_plan(cell, own, load())) for cell in expanded.with_gpu]
    places: dict[str, Cell] = {}
    for cell in (plan.cell for plan in plans):
        first = places.setdefault(cell.id, cell)
        if first is not cell:
            raise BadInput.at(cell.file, cell.line, f"this becomes {cell.id}, as line {first.line} does")
    left_out = () if own else expanded.with_gpu
    job = Job(matrix, tuple(plans), expanded.excluded, left_out, expanded.notes)
    if settings.only:
        job = replace(job, plans=_only(settings, job), with_gpu=())
    if settings.profile:
        named = tuple(replace(p, cell=replace(p.cell, profile=settings.profile)) for p in job.plans)
        job = replace(job, plans=named)
    return job


def _only(settings: Settings, job: Job) -> tuple[Plan, ...]:
    ids = [plan.cell.id for plan in job.plans]
    kept = tuple(p for p in job.plans if any(fnmatch(p.cell.id, pattern) for pattern in settings.only))
    if not kept:
        near = nearest(settings.only[0], ids)
        raise BadInput(
            f"{settings.matrix}: no cell matches {', '.join(settings.only)}; cells: {', '.join(ids)}",
            hint=f"did you mean {near}?" if near else None,
        )
    return kept


def _on_system(plan: Plan) -> Plan:
    """The plan, refused when its distribution is none we build on or has no such Python."""
    cell = plan.cell
    have = pythons_of(cell.os)
    if plan.python in have:
        return plan
    if have:
        also = ", ".join(systems_with(plan.python))
        text = f"{cell.os} has Python {', '.join(have)}, not {plan.python}"
        fix = f"os: {also}" if also else f"python: {have[0]}"
    else:
        text, fix = f"images are built on {', '.join(systems())}; not on {cell.os}", "os: debian12"
    finding = Finding("python-os", "no", text, "packages of the distribution", fix=fix)
    return replace(plan, verdict="does-not-fit", findings=(finding, *plan.findings))


def cards_here(gpus: str = "auto") -> tuple[Target, ...]:
    """The cards and driver that containers of this engine reach; empty when there are none, or the engine is remote.

    Raises:
        EnvironmentFault: no engine answers.
    """
    client = connect()
    if gpus == "none" or not is_local(client) or find_gpu_access(client, gpus).kind == "none":
        return ()
    host = _here()
    return tuple(dict.fromkeys(Target(gpu.name, host.driver, host.driver_cuda) for gpu in host.gpus))


@lru_cache(maxsize=1)
def _here() -> Host:
    return read_here()


def refusal(plan: Plan) -> list[str]:
    """Why a cell is not built: its blockers, or that nothing is known to install for it. Empty when it can be."""
    blockers = [f.evidence for f in plan.findings if f.verdict == "no"]
    if not blockers and not plan.requirements:
        blockers = [f.evidence for f in plan.findings if f.verdict == "unknown"] or ["nothing is known to install"]
    return blockers


# --- pin and render ---------------------------------------------------------------------------------------------


def platform_of(plan: Plan) -> Platform:
    """What the plan's wheels must run on.

    Raises:
        BadInput: the glibc of its distribution is not known.
    """
    glibc = load().glibc_of_os(plan.cell.os)
    if glibc is None:
        raise BadInput(f"{plan.cell.file}:{plan.cell.line}: the glibc of {plan.cell.os!r} is not known")
    return Platform(plan.python, glibc, plan.cell.machine)


def lock_plan(plan: Plan, matrix: Matrix, settings: Settings) -> tuple[LockedWheel, ...]:
    """The plan's wheels, from its committed lock where that is for the same requirements, else resolved anew."""
    place = settings.out / plan.cell.id / "pylock.toml"
    platform = platform_of(plan)
    if not settings.relock and lock_is_current(plan, settings):
        return read_lock(place.read_text(encoding="utf-8"), platform, file=str(place))
    index = plan.index_url or matrix.mirrors.pypi
    extra = (matrix.mirrors.pypi or "https://pypi.org/simple",) if plan.index_url else ()
    text = lock_requirements(plan.requirements, platform, index_url=index, extra_index_urls=extra)
    wheels = read_lock(text, platform, file=str(place))
    write_text(place, f"{_lock_header(plan)}\n{text}")
    return wheels


def lock_is_current(plan: Plan, settings: Settings) -> bool:
    """True when the cell's lock is there and for these requirements and this platform."""
    place = settings.out / plan.cell.id / "pylock.toml"
    return place.exists() and place.read_text(encoding="utf-8").startswith(_lock_header(plan) + "\n")


def _lock_header(plan: Plan) -> str:
    platform = platform_of(plan)
    asked = {"requirements": list(plan.requirements), "platform": [platform.python, platform.glibc, platform.machine]}
    return LOCK_HEADER + json.dumps(asked)


def render_plan(plan: Plan, wheels: Sequence[LockedWheel], settings: Settings) -> Rendered:
    """The cell's Dockerfile and requirement files, written to its folder where they changed."""
    rendered = render_cell(plan, layers_of(wheels))
    folder = settings.out / plan.cell.id
    for name, text in rendered.files.items():
        place = folder / name
        if not place.exists() or place.read_text(encoding="utf-8") != text:
            write_text(place, text)
    for stale in set((folder / "layers").glob("*.txt")) - {folder / name for name in rendered.files}:
        stale.unlink()
    return rendered


def write_bake(pairs: Sequence[tuple[Plan, Rendered]], settings: Settings) -> Path:
    """The bake file of these cells, beside their folders."""
    place = settings.out / f"{settings.matrix.stem}.docker-bake.json"
    write_text(place, bake_file(pairs))
    return place


# --- build, verify, certify -------------------------------------------------------------------------------------


@dataclass
class Workshop:
    """What the cells of one run share: registry repositories, the layer assembler, the engine's facts."""

    settings: Settings
    matrix: Matrix
    run: Path
    say: Say
    registry: str
    assembler: Assembler
    base_lock: threading.Lock = field(default_factory=threading.Lock)
    engine_lock: threading.Lock = field(default_factory=threading.Lock)
    stopping: threading.Event = field(default_factory=threading.Event)

    def stop(self) -> None:
        """End what other threads have running: builds and containers at once, downloads soon; nothing new begins."""
        self.stopping.set()
        self.assembler.stop()
        stop_builds()
        kill_running()

    def go_on(self) -> None:
        """Raises EnvironmentFault once :meth:`stop` was called."""
        if self.stopping.is_set():
            raise EnvironmentFault("stopped")

    def repository(self, name: str) -> Repository:
        return Repository.of(f"{self.registry}/{name}")


@contextmanager
def open_workshop(settings: Settings, matrix: Matrix, say: Say) -> Iterator[Workshop]:
    """Check that registry and disk are in order, make the run's folder, and clean up whatever happens.

    Raises:
        EnvironmentFault: the registry cannot be reached, or the disk is nearly full.
    """
    registry = (settings.registry or matrix.registry).rstrip("/")
    Repository.of(f"{registry}/layers").registry.ping()
    _require_disk(settings.cache)
    run = settings.state / "runs" / f"{datetime.now(timezone.utc):%Y%m%dT%H%M%S}-{settings.matrix.stem}"
    run.mkdir(parents=True, exist_ok=True)
    assembler = Assembler(Repository.of(f"{registry}/layers"), settings.cache, say=lambda text: say("layers", text))
    try:
        yield Workshop(settings, matrix, run, say, registry, assembler)
    finally:
        assembler.close()


def build_cell(plan: Plan, workshop: Workshop) -> Produced:
    """Plan → image in the registry under its staging tag.

    Raises:
        GpuimgError: whatever step failed, with what to do.
    """
    settings, cell = workshop.settings, plan.cell

    def say(text: str) -> None:
        workshop.say(cell.id, text)

    workshop.go_on()
    wheels = lock_plan(plan, workshop.matrix, settings)
    rendered = render_plan(plan, wheels, settings)
    with workshop.base_lock:
        mirrors = workshop.matrix.mirrors
        base = provide_base(
            public_base(plan), cell.os, workshop.repository("base"),
            cache=settings.cache, mirror=mirrors.docker, apt_mirror=mirrors.apt, say=say,
        )  # fmt: skip
    say(f"base {base.origin}: {base.reference.split('@')[0]}" + (f" of {base.snapshot}" if base.snapshot else ""))
    return produce(
        plan, rendered, wheels, base,
        context=settings.out / cell.id, target=workshop.repository(cell.framework),
        foundations=workshop.repository("foundation"), assembler=workshop.assembler,
        producer=settings.producer, log=workshop.run / cell.id / "build.log", builder=settings.builder,
        pypi=workshop.matrix.mirrors.pypi, say=say,
    )  # fmt: skip


def build_all(settings: Settings, say: Say) -> list[dict[str, Any]]:
    """Every cell built into the registry, several at once; a cell's trouble is in its row, under 'error'."""
    job = read_job(settings, lambda: cards_here(settings.gpus))

    def one(plan: Plan) -> dict[str, Any]:
        blockers = refusal(plan)
        if blockers:
            return {"id": plan.cell.id, "error": "refused: " + "; ".join(blockers), "hint": advice(plan)}
        seconds: dict[str, float] = {}
        try:
            with _timed(seconds, "build"):
                made = build_cell(plan, workshop)
        except GpuimgError as error:
            return {"id": plan.cell.id, "error": error.message, "hint": error.hint, "exit": error.exit_code}
        row: dict[str, Any] = {
            "id": plan.cell.id, "reference": f"{made.repository}@{made.digest}", "seconds": seconds["build"],
        }  # fmt: skip
        return row | ({"work": made.work.to_json()} if made.work else {})

    with open_workshop(settings, job.matrix, say) as workshop:
        return each(one, job.plans, settings.jobs, workshop)


T = TypeVar("T")


def each(work: Callable[[Plan], T], plans: Sequence[Plan], jobs: int, workshop: Workshop) -> list[T]:
    """``work`` on every plan, ``jobs`` at once; on Ctrl-C what runs is stopped and cleaned up before it is passed on."""
    with ThreadPoolExecutor(jobs) as pool:
        futures = [pool.submit(work, plan) for plan in plans]
        try:
            return [future.result() for future in futures]
        except BaseException:
            for future in futures:
                future.cancel()
            workshop.stop()
            raise


def certify_cell(plan: Plan, workshop: Workshop) -> Outcome:
    """Build, verify and certify one cell; never raises for what is wrong with this cell alone."""
    cell = plan.cell
    blockers = refusal(plan)
    if blockers:
        state: State = "refused" if any(f.verdict == "no" for f in plan.findings) else "cannot-tell"
        return Outcome(cell.id, state, "; ".join(blockers), hint=advice(plan))
    seconds: dict[str, float] = {}
    try:
        with _timed(seconds, "build"):
            produced = build_cell(plan, workshop)
        outcome = certify_image(
            f"{produced.repository}@{produced.digest}", produced.repository, produced.digest, workshop,
            name=cell.id, profile=cell.profile, framework=cell.framework, tag=image_tag(cell), seconds=seconds,
            gpus="none" if cell.device == "cpu" else workshop.settings.gpus,
            cell={"id": cell.id, "version": plan.version, "wheel_cuda": plan.wheel_cuda, "python": plan.python},
        )  # fmt: skip
    except GpuimgError as error:
        return Outcome(
            cell.id, "error", error.message, seconds=seconds, hint=error.hint, exit_code=error.exit_code
        )  # fmt: skip
    amounts = {}
    if produced.work is not None:
        amounts = {"fetched": produced.work.fetched, "uploaded": produced.work.uploaded}
    return replace(outcome, bytes=amounts)


def certify_image(
    reference: str,
    repository: Repository,
    digest: str,
    workshop: Workshop,
    *,
    name: str,
    profile: str,
    tag: str,
    framework: str | None = None,
    gpus: str = "auto",
    network: str = "none",
    cell: dict[str, Any] | None = None,
    seconds: dict[str, float] | None = None,
) -> Outcome:
    """Verify a digest in the registry and, when policy is satisfied, sign, attach and tag that same digest.

    Raises:
        GpuimgError: engine or registry trouble.
    """
    seconds = {} if seconds is None else seconds
    policy = load_policy()
    key = result_key(digest, profile, framework, gpus, policy.digest)
    earlier = None if workshop.settings.reverify else _earlier(workshop.settings.state, key, repository)
    if earlier is not None:
        return replace(earlier, cell=name, state="unchanged", seconds=seconds)
    with workshop.engine_lock, _timed(seconds, "verify"):
        # one at a time: checks measure speed, and two at once would measure each other
        workshop.go_on()
        workshop.say(name, f"verify with profile {profile}")
        evidence = run_suite(
            reference, profile=profile, gpus=gpus, framework=framework, network=network,
            progress=lambda event: workshop.say(name, _event(event)),
        )  # fmt: skip
    verdict = judge(evidence, policy)
    folder = workshop.run / name
    if not verdict.certified:
        write_entry(folder, Entry(name, evidence, verdict.to_json()))
        broken = [c for c in evidence.checks if c.status in ("fail", "error")]
        state: State = "failed" if broken else "cannot-tell"
        text = "; ".join(f"{c.id}: {c.reason}" for c in broken) or "; ".join(verdict.reasons)
        hint = next((c.hint for c in broken if c.hint), None)
        return Outcome(name, state, text, reference, seconds=seconds, hint=hint)
    with _timed(seconds, "certify"):
        certificate = sign(
            make_certificate(
                evidence, verdict, policy, image=str(repository), digest=digest, issued=datetime.now(timezone.utc),
                salt=secrets.token_hex(16), cell=cell,
            ),
            open_signer(workshop.settings.key),
        )  # fmt: skip
        manifest = repository.get_manifest(digest)
        attached = repository.attach(
            manifest, bundle_of(certificate), artifact_type=BUNDLE_TYPE,
            annotations=bundle_annotations(certificate), title_suffix=BUNDLE_SUFFIX,
        )  # fmt: skip
        repository.tag(digest, tag)
        repository.tag(digest, f"{tag}-certified")
    write_entry(folder, Entry(name, evidence, verdict.to_json(), certificate.statement))
    outcome = Outcome(
        name, "certified", _proven(verdict.scope, evidence), reference, f"{repository}:{tag}-certified",
        scope=verdict.scope, certificate=attached, seconds=seconds,
    )  # fmt: skip
    _remember(workshop.settings.state, key, outcome, certificate.statement["predicate"]["expires"])
    return outcome


def certify_all(settings: Settings, say: Say) -> tuple[Job, tuple[Outcome, ...]]:
    """The main job: every cell of the matrix, several builds at once, verification one at a time.

    Raises:
        GpuimgError: nothing could be begun (bad matrix, no registry, no engine). What is wrong with one cell is in
        its outcome instead.
    """
    connect()
    job = read_job(settings, lambda: cards_here(settings.gpus))
    for note in job.notes:
        say("matrix", note)
    with open_workshop(settings, job.matrix, say) as workshop:
        outcomes = tuple(each(lambda plan: certify_cell(plan, workshop), job.plans, settings.jobs, workshop))
        write_text(
            workshop.run / "state.json",
            json.dumps({"matrix": str(settings.matrix), "outcomes": [o.to_json() for o in outcomes]}, indent=1),
        )
    return job, outcomes


def certify_reference(
    reference: str, settings: Settings, say: Say, *, framework: str | None = None, network: str = "none"
) -> Outcome:
    """Verify and certify an image gpuimg did not build, under the digest its own registry serves.

    An image that only the engine has is published to the registry its name says first, as it is.

    Raises:
        GpuimgError: no such image, no engine, no registry.
    """
    named = parse_reference(reference)
    repository = Repository.of(named)
    provided = provide_digest(reference, progress=lambda text: say(named.repository, text))
    digest = repository.image_manifest(provided.selector).digest
    matrix = Matrix.model_validate({"schema": "gpuimg/v1", "images": [{"framework": "torch", "version": "0"}]})
    settings = replace(settings, registry=named.name, matrix=Path(named.repository.rpartition("/")[2]))
    with open_workshop(settings, matrix, say) as workshop:
        return certify_image(
            f"{repository}@{digest}", repository, digest, workshop,
            name=f"{named.repository.rpartition('/')[2]}-{named.tag or digest[7:19]}",
            profile=settings.profile or "base", framework=framework, gpus=settings.gpus, network=network,
            tag=named.tag or f"gpuimg-{digest[7:19]}",
        )  # fmt: skip


# --- results by content -----------------------------------------------------------------------------------------


def result_key(digest: str, profile: str, framework: str | None, gpus: str, policy: str) -> str:
    """Image digest × suite × profile × GPUs and driver × policy, as one hex digest."""
    client = connect()
    access = find_gpu_access(client, gpus)
    where: list[object] = []
    if access.kind != "none":
        # a remote engine's cards cannot be seen from here: its identity stands for them
        where = [_cards(), list(access.devices)] if is_local(client) else [client.info().get("ID"), access.devices]
    parts = [digest, suite_digest(), profile, framework, policy, access.kind, where]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _cards() -> list[str]:
    """Driver, and each card's name and UUID: what a result on this machine depends on."""
    host = _here()
    return [str(host.driver), *(f"{gpu.name} {gpu.uuid}" for gpu in host.gpus)]


def _earlier(state: Path, key: str, repository: Repository) -> Outcome | None:
    place = state / "results" / f"{key}.json"
    try:
        document = json.loads(place.read_text(encoding="utf-8"))
        if parse_time(document["expires"]) < datetime.now(timezone.utc) + timedelta(days=1):
            return None
        outcome = Outcome(**document["outcome"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    try:  # the certificate must still be where it was put
        tag = str(outcome.tag).rpartition(":")[2]
        if f"{repository}@{repository.resolve(tag)}" != outcome.reference or outcome.certificate is None:
            return None
        repository.get_manifest(outcome.certificate)
    except EnvironmentFault:
        return None
    return outcome


def _remember(state: Path, key: str, outcome: Outcome, expires: str) -> None:
    write_text(
        state / "results" / f"{key}.json", json.dumps({"outcome": outcome.to_json(), "expires": expires}, indent=1)
    )


# --- small things -----------------------------------------------------------------------------------------------


def _require_disk(cache: Path, needed_gib: float = 3.0) -> None:
    place = cache
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free / 2**30
    if free < needed_gib:
        raise EnvironmentFault(
            f"only {free:.1f} GiB free at {place}; a build needs {needed_gib:.0f} GiB at least",
            hint="free space, or set GPUIMG_CACHE to a larger disk",
        )


@contextmanager
def _timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    started = time.monotonic()
    try:
        yield
    finally:
        seconds[name] = round(time.monotonic() - started, 1)


def _event(event: dict[str, Any]) -> str:
    if event["event"] == "status":
        return str(event["text"])
    reason = f": {event['reason']}" if event.get("reason") and event.get("status") != "pass" else ""
    return f"{event.get('status')} {event.get('id')} {event.get('seconds', 0):.1f} s{reason}"


def _proven(scope: dict[str, Any], evidence: Evidence) -> str:
    passed = sum(1 for c in evidence.checks if c.status == "pass")
    where = "cpu"
    if scope.get("device") != "cpu":
        where = f"{' + '.join(scope.get('gpus', []))}, driver branch {scope.get('driver_branch')}"
    return f"{where}, profile {evidence.profile}, {passed} checks passed"


def advice(plan: Plan) -> str | None:
    """The nearest possible thing, in one line."""
    if plan.instead:
        first = plan.instead[0]
        asked = first.get("requirement")
        what = ", ".join(f"{name}=={version}" for name, version in asked.items()) if isinstance(asked, dict) else ""
        why = str(first.get("why") or "")
        return f"instead: {what}" + (f" ({why})" if what and why else why)
    return next((f.fix for f in plan.findings if f.fix), None)
