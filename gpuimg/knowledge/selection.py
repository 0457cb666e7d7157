"""Which published builds a requirement may mean, in the order pip would take them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from gpuimg.knowledge.base import Knowledge, version_key
from gpuimg.knowledge.requirement import label_cuda
from gpuimg.knowledge.rules.numbers import minor
from gpuimg.knowledge.rules.wheel import index_holds
from gpuimg.knowledge.situation import Situation, Wanted, wanted_cuda
from gpuimg.knowledge.tables import Build
from gpuimg.nouns import Requirement


@dataclass(frozen=True)
class Choice:
    """Builds in pip's order, or why there are none. ``newer``: the version is newer than the data."""

    builds: tuple[Build, ...] = ()
    problem: str | None = None
    newer: bool = False
    nearest: tuple[str, ...] = ()
    close: bool = False
    """The unknown name is one slip away from a known one."""
    no_such_build: tuple[Build, ...] = ()
    """The version exists, but not in the build asked for: these are the ones that do."""


def specifier_of(requirement: Requirement) -> SpecifierSet:
    """The requirement's specifier; an unreadable one allows everything."""
    return _specifier(requirement.specifier)


@lru_cache(maxsize=4096)
def _specifier(text: str) -> SpecifierSet:
    try:
        return SpecifierSet(text)
    except InvalidSpecifier:
        return SpecifierSet()


def is_exact(requirement: Requirement) -> bool:
    """Is one single version named?"""
    return _is_exact(requirement.specifier)


@lru_cache(maxsize=4096)
def _is_exact(text: str) -> bool:
    return bool(re.fullmatch(r"===?[^,*]+", text))


def _matches(version: str, specifier: SpecifierSet, requirement: Requirement) -> bool:
    key = version_key(version)
    if specifier.contains(key):
        return True
    if is_exact(requirement) and key.is_postrelease and re.search(r"post\d{2,3}$", version):
        # Paddle puts the CUDA into the version: 2.4.2.post112 is 2.4.2 for CUDA 11.2; only an explicit one means it.
        return False
    return is_exact(requirement) and specifier.contains(key, prereleases=True)


@lru_cache(maxsize=1024)
def rows_of(name: str, knowledge: Knowledge) -> tuple[Build, ...]:
    """Builds of a package. ``onnxruntime`` (CPU) is released together with onnxruntime-gpu and follows its rows."""
    rows = knowledge.builds(name)
    if rows or name != "onnxruntime":
        return rows
    made: dict[tuple[str, str], Build] = {}
    for build in knowledge.builds("onnxruntime-gpu"):
        for machine in ("x86_64", "aarch64"):
            made.setdefault((build.version, machine), _cpu_twin(build, machine))
    return tuple(made.values())


def _cpu_twin(build: Build, machine: str) -> Build:
    return replace(
        build, framework="onnxruntime", device="cpu", wheel_cuda=None, cudnn=None, nccl=None, sm=None, bundles_cuda=True,
        machine=machine, size_mib=28, cuda_builds=(), index="pypi", index_url=None, local=None, notes=("CPU-only: the GPU build is onnxruntime-gpu",), default=True,
    )  # fmt: skip


def choose(wanted: Wanted, situation: Situation, knowledge: Knowledge) -> Choice:
    """All builds that satisfy the requirement on that machine; newest version first, pip's own default first
    within it."""
    requirement = wanted.requirement
    rows = rows_of(requirement.name, knowledge)
    if not rows:
        near = _near_names(requirement.name, knowledge)
        close = bool(difflib.get_close_matches(requirement.name, near, n=1, cutoff=0.85))
        return Choice(problem=f"{requirement.name} is not in the data", nearest=near, close=close)
    specifier = specifier_of(requirement)
    known = tuple(dict.fromkeys(b.version for b in rows))
    versions = [v for v in known if _matches(v, specifier, requirement)]
    if not versions:
        return _no_version(requirement, known, knowledge)
    machine_rows = [b for b in rows if b.machine == situation.machine]
    kept = [b for b in machine_rows if b.version in set(versions) and not b.yanked] or [
        b for b in machine_rows if b.version in set(versions)
    ]
    if not kept:
        other = sorted({b.machine for b in rows if b.version in set(versions)})
        return Choice(
            problem=f"{requirement.name} {versions[-1]} has no wheel for {situation.machine}, "
            f"only for {', '.join(other)}",
            no_such_build=tuple(b for b in rows if b.version in set(versions)),
        )
    kept = _by_extra(kept, requirement)
    labelled = _by_label(kept, wanted, situation)
    if labelled is None:
        return Choice(no_such_build=tuple(kept))
    ordered = sorted(
        labelled,
        key=lambda b: (version_key(b.version), b.default, b.index == "pypi", version_key(b.wheel_cuda or "0")),
        reverse=True,
    )
    return Choice(builds=_from_url(tuple(ordered), requirement))


def _by_extra(builds: Sequence[Build], requirement: Requirement) -> list[Build]:
    """Rows of the extra asked for; without one, rows that need none."""
    named = {b.extra for b in builds if b.extra}
    asked = [e for e in requirement.extras if e in named]
    if asked:
        return [b for b in builds if b.extra == asked[0]]
    return [b for b in builds if b.extra is None] or list(builds)


def _by_label(builds: Sequence[Build], wanted: Wanted, situation: Situation) -> list[Build] | None:
    requirement = wanted.requirement
    label = requirement.local
    if label is None:
        return _unlabelled(builds, wanted, situation)
    if label == "cpu":
        found = [b for b in builds if b.device == "cpu" and (b.local in {"cpu", None})]
        return found or None
    found = [b for b in builds if b.local and b.local.lower() == label]
    cuda = wanted_cuda(requirement)
    if not found and cuda:
        found = [b for b in builds if b.wheel_cuda and minor(b.wheel_cuda) == cuda]
    if not found and requirement.name == "flash-attn":
        found = [b for b in builds if b.local and label.startswith(b.local.lower())]
    if not found and wanted.origin in {"image", "conda"}:
        return _nearest_build(builds, cuda)
    if not found and cuda and not any(b.local for b in builds):
        # Packages without labelled builds (vllm of old, jax): the label is the base's, not theirs.
        return None
    return found or None


def _nearest_build(builds: Sequence[Build], cuda: str | None) -> list[Build]:
    """What an image most likely holds: the build of its CUDA, else of its CUDA major, else the default."""
    if cuda is not None:
        same = [b for b in builds if b.wheel_cuda is None or b.wheel_cuda.split(".")[0] == cuda.split(".")[0]]
        if same:
            default = [b for b in same if b.default]
            return [replace(b, wheel_cuda=cuda) if _unlike(b, cuda) else b for b in default or same]
    return [b for b in builds if b.default] or list(builds)


def _unlike(build: Build, cuda: str) -> bool:
    return build.wheel_cuda is None or minor(build.wheel_cuda) != minor(cuda)


def _unlabelled(builds: Sequence[Build], wanted: Wanted, situation: Situation) -> list[Build]:
    """pip without a label: PyPI's build; where the file names an index of labelled builds, those come first."""
    if wanted.origin == "file" and situation.index_urls:
        held = [b for b in builds if b.local and b.index != "pypi" and _named(b, situation.index_urls)]
        versions = {b.version for b in held}
        rest = [b for b in builds if b.default and b.version not in versions]
        if held:
            return held if situation.sole_index else held + rest
    default = [b for b in builds if b.default]
    covered = {b.version for b in default}
    return default + [b for b in builds if b.version not in covered]


def _named(build: Build, index_urls: Sequence[str]) -> bool:
    label = (build.local or "").lower()
    return any(
        label and re.search(rf"(?<![a-z0-9]){re.escape(label)}(?![0-9])", url.lower()) for url in index_urls
    ) and (index_holds(build, index_urls))


def _from_url(builds: tuple[Build, ...], requirement: Requirement) -> tuple[Build, ...]:
    """A wheel file names its own Python and glibc: those count, whatever else was published."""
    if not requirement.url or not requirement.url.split("#")[0].split("?")[0].endswith(".whl"):
        return builds
    name = requirement.url.split("#")[0].split("?")[0].rsplit("/", 1)[-1].replace("%2B", "+").replace("%2b", "+")
    try:
        _, _, _, tags = parse_wheel_filename(name)
    except InvalidWheelFilename:
        return builds
    pythons = tuple(sorted({f"3.{t.interpreter[3:]}" for t in tags if re.fullmatch(r"cp3\d+", t.interpreter)}))
    if not pythons or any(t.abi == "abi3" for t in tags):
        return builds
    return tuple(replace(b, pythons=pythons) for b in builds)


def _no_version(requirement: Requirement, known: Sequence[str], knowledge: Knowledge) -> Choice:
    named = re.findall(r"\d[\w.]*", requirement.specifier)
    top = known[-1]
    newer = bool(named) and "<" not in requirement.specifier and all(version_key(n) > version_key(top) for n in named)
    if newer:
        return Choice(
            problem=f"{requirement.name} {named[0]} is newer than the data ({knowledge.date}, newest {top})",
            newer=True,
            nearest=tuple(known[-3:]),
        )
    near = difflib.get_close_matches(named[0], known, n=3, cutoff=0.5) if named else []
    if named and not near:
        near = [v for v in known if v.split(".")[:2] == named[0].split(".")[:2]][-3:]
    text = f"{requirement.name}{requirement.specifier}: no such version is known"
    return Choice(problem=text, nearest=tuple(near or known[-3:]))


@lru_cache(maxsize=1024)
def _near_names(name: str, knowledge: Knowledge) -> tuple[str, ...]:
    names = (*knowledge.frameworks(), *knowledge.companion_names(), *knowledge.aliases)
    return tuple(difflib.get_close_matches(name, names, n=3, cutoff=0.6))


def describe(build: Build) -> str:
    """'torch 2.5.1+cu124', 'jax[cuda12] 0.4.30', 'torch 2.5.1 (PyPI)'."""
    extra = f"[{build.extra}]" if build.extra else ""
    label = ""
    if build.local and not build.version.endswith(build.local):
        label = f"+{build.local}"
    where = " (PyPI)" if build.index == "pypi" and not build.extra and build.device == "cuda" and not label else ""
    return f"{build.framework}{extra} {build.version}{label}{where}"


def cuda_of(build: Build) -> str | None:
    """wheel_cuda, or the CUDA its label names; for the toolkit's own packages their version."""
    if build.framework in {"cuda-toolkit", "nvidia-cuda-runtime"}:
        return minor(build.version)
    return build.wheel_cuda or label_cuda(build.local) or _named_cuda(build.framework)


def _named_cuda(name: str) -> str | None:
    """cupy-cuda12x → '12', cupy-cuda112 → '11.2', nvidia-cudnn-cu12 → '12'."""
    found = re.search(r"-cu(?:da)?(\d{2})(\d?)x?$", name)
    return (f"{found[1]}.{found[2]}" if found[2] else found[1]) if found else None
