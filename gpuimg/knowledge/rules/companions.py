"""Packages that must match each other: exact pins between them, one cuDNN, NumPy's ABI.

Pins are read from the packages' own metadata; a pair whose pins exclude each other cannot be installed together.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from packaging.requirements import InvalidRequirement
from packaging.requirements import Requirement as Pep508
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from gpuimg.knowledge.base import version_key
from gpuimg.knowledge.rules.cudnn import exact
from gpuimg.knowledge.rules.numbers import major
from gpuimg.knowledge.rules.outcome import Outcome, outcome
from gpuimg.knowledge.tables import Build

ABI_BREAKS = "https://numpy.org/devdocs/release/2.0.0-notes.html"


@dataclass(frozen=True)
class Asked:
    """What is asked of a package: its specifier, and the build chosen for it."""

    name: str
    specifier: str
    build: Build | None
    file: str | None = None


def pins(build: Build) -> Mapping[str, SpecifierSet]:
    """Name → specifier of what a build requires (markers left out: rows hold only what matters on Linux)."""
    return _pins(build.requires)


@lru_cache(maxsize=4096)
def _pins(requires: tuple[str, ...]) -> Mapping[str, SpecifierSet]:
    found: dict[str, SpecifierSet] = {}
    for text in requires:
        try:
            one = Pep508(re.sub(r"\+[\w.]+", "", text))
        except InvalidRequirement:
            continue
        name = canonicalize_name(one.name)
        found[name] = found.get(name, SpecifierSet()) & one.specifier
    return found


def judge_pins(asked: Sequence[Asked]) -> list[Outcome]:
    """Every pin of every chosen build against what else is asked for."""
    by_name = {a.name: a for a in asked}
    made: list[Outcome] = []
    for one in asked:
        if one.build is None:
            continue
        for name, specifier in pins(one.build).items():
            other = by_name.get(name)
            if other is None or name == one.name:
                continue
            made.extend(_pair(one, specifier, other))
    return made


def _pair(one: Asked, specifier: SpecifierSet, other: Asked) -> list[Outcome]:
    assert one.build is not None
    subject = f"{one.name} {one.build.version}"
    version = other.build.version if other.build else None
    wanted = f"{other.name}{specifier}"
    if other.name == "numpy":
        return _numpy(one, specifier, other)
    if version is None:
        return []
    if specifier.contains(_public(version), prereleases=True):
        return [
            outcome("companions", "yes", f"{subject} wants {wanted}; {other.name} {version} it is", one.build.source)
        ]
    return [
        outcome(
            "companions",
            "no",
            f"{subject} wants {wanted}, and {other.name} {version} is asked for: they do not go together",
            one.build.source,
            fix=f"{other.name}{specifier}, or the {one.name} that belongs to {other.name} {version}",
        )
    ]


def _public(version: str) -> str:
    return str(version_key(version).public)


def _numpy(one: Asked, specifier: SpecifierSet, other: Asked) -> list[Outcome]:
    assert one.build is not None
    subject = f"{one.name} {one.build.version}"
    version = other.build.version if other.build else None
    if version is None or specifier.contains(version, prereleases=True):
        return []
    exactly = other.specifier.startswith("==")
    breaks = version_key(version) >= Version("2") and not specifier.contains("2.0.0")
    if not breaks:
        return [
            outcome(
                "numpy",
                "warn",
                f"{subject} wants numpy{specifier}; numpy {version} is asked for",
                one.build.source,
                fix=f"numpy{specifier}",
            )
        ]
    if exactly or ">=2" in other.specifier.replace(" ", ""):
        return [
            outcome(
                "numpy",
                "no",
                f"{subject} was compiled against NumPy 1 (numpy{specifier}); numpy {version} breaks its ABI",
                ABI_BREAKS,
                fix="numpy<2",
            )
        ]
    return [
        outcome(
            "numpy",
            "warn",
            f"{subject} was compiled against NumPy 1; an open numpy requirement installs numpy {version}, which "
            "breaks it",
            ABI_BREAKS,
            fix="numpy<2",
        )
    ]


def judge_shared_libraries(asked: Sequence[Asked]) -> list[Outcome]:
    """Two frameworks that pin different cuDNN wheels of one CUDA major exclude each other; of two majors they mix."""
    gpu = [
        a
        for a in asked
        if a.build is not None and a.build.device == "cuda" and a.build.bundles_cuda and a.build.wheel_cuda
    ]
    made: list[Outcome] = []
    for index, first in enumerate(gpu):
        for second in gpu[index + 1 :]:
            made.extend(_libraries(first, second))
    return made


_FRAMEWORKS = frozenset(
    {"torch", "tensorflow", "jax", "paddlepaddle-gpu", "nvidia-cudnn-cu11", "nvidia-cudnn-cu12", "nvidia-cudnn-cu13"}
)


def _libraries(first: Asked, second: Asked) -> list[Outcome]:
    a, b = first.build, second.build
    assert a is not None
    assert b is not None
    if first.name not in _FRAMEWORKS or second.name not in _FRAMEWORKS:
        return _majors(first, second)
    names = f"{first.name} {a.version} and {second.name} {b.version}"
    left, right = exact(a.cudnn), exact(b.cudnn)
    assert a.wheel_cuda is not None
    assert b.wheel_cuda is not None
    if major(a.wheel_cuda) != major(b.wheel_cuda):
        return [
            outcome(
                "one-cuda",
                "warn",
                f"{names} bring CUDA {a.wheel_cuda} and {b.wheel_cuda} into one environment",
                a.source,
                fix="use builds of one CUDA major",
            )
        ]
    if left and right and left.count(".") > 1 and right.count(".") > 1 and left != right:
        return [
            outcome(
                "cudnn",
                "no",
                f"{names} pin different cuDNN: {left} and {right}; pip cannot install both",
                a.source,
                fix="use versions that pin the same cuDNN, or two environments",
            )
        ]
    for pinned, ranged, who in ((left, b.cudnn, second), (right, a.cudnn, first)):
        if (
            pinned
            and pinned.count(".") > 1
            and ranged
            and exact(ranged) is None
            and not SpecifierSet(ranged).contains(pinned)
        ):
            return [
                outcome(
                    "cudnn",
                    "no",
                    f"{names}: {who.name} wants cuDNN {ranged}, the other pins {pinned}; pip cannot install both",
                    a.source,
                    fix="use versions whose cuDNN ranges meet, or two environments",
                )
            ]
    return []


def _majors(first: Asked, second: Asked) -> list[Outcome]:
    a, b = first.build, second.build
    assert a is not None
    assert b is not None
    assert a.wheel_cuda is not None
    assert b.wheel_cuda is not None
    if major(a.wheel_cuda) == major(b.wheel_cuda):
        return []
    verdict = "no" if {first.name, second.name} & {"torch"} and _links_torch(first, second) else "warn"
    return [
        outcome(
            "one-cuda",
            "no" if verdict == "no" else "warn",
            f"{first.name} {a.version} is built for CUDA {a.wheel_cuda} and {second.name} {b.version} for "
            f"CUDA {b.wheel_cuda}",
            a.source,
            fix="use builds of one CUDA major",
        )
    ]


def _links_torch(first: Asked, second: Asked) -> bool:
    linked = {"torchvision", "torchaudio", "vllm", "xformers", "flash-attn", "sgl-kernel", "torchtext"}
    return bool({first.name, second.name} & linked)


ONE_LIBRARY_PER_CUDA: Mapping[str, SpecifierSet] = {"bitsandbytes": SpecifierSet("<0.50")}
"""Packages that hold one library for each CUDA minor and load the one of torch's wheel_cuda; from 0.50 bitsandbytes takes
one of the same major. https://github.com/bitsandbytes-foundation/bitsandbytes/blob/0.45.0/bitsandbytes/cextension.py"""


def loads_torchs(build: Build, torch: Build | None) -> Build:
    """Such a package as it runs beside that torch: its wheel_cuda is torch's, or the newest of the major where that does."""
    versions = ONE_LIBRARY_PER_CUDA.get(build.framework)
    if versions is None or torch is None or torch.wheel_cuda is None:
        return build
    if torch.wheel_cuda in build.cuda_builds:
        return replace(build, wheel_cuda=torch.wheel_cuda)
    same = [c for c in build.cuda_builds if major(c) == major(torch.wheel_cuda)]
    if not same or versions.contains(_public(build.version), prereleases=True):
        return build
    return replace(build, wheel_cuda=same[-1])


def judge_loaded_libraries(asked: Sequence[Asked]) -> list[Outcome]:
    """A package that loads a library by torch's wheel_cuda must have that library."""
    by_name = {a.name: a.build for a in asked}
    torch = by_name.get("torch")
    if torch is None or torch.wheel_cuda is None or "." not in torch.wheel_cuda or torch.device != "cuda":
        return []
    made: list[Outcome] = []
    for name, versions in ONE_LIBRARY_PER_CUDA.items():
        build = by_name.get(name)
        if build is None or not build.cuda_builds or not versions.contains(_public(build.version), prereleases=True):
            continue
        text = f"{name} {build.version} has libraries for CUDA {', '.join(build.cuda_builds)}"
        if torch.wheel_cuda in build.cuda_builds:
            made.append(
                outcome("companions", "yes", f"{text}: torch's {torch.wheel_cuda} (wheel_cuda) is there", build.source)
            )
            continue
        made.append(
            outcome(
                "companions",
                "no",
                f"{text}, none for torch's {torch.wheel_cuda} (wheel_cuda): it does not load, or falls back to the CPU",
                build.source,
                fix=f"a newer {name}, or a torch built for CUDA {build.cuda_builds[-1]}",
            )
        )
    return made
