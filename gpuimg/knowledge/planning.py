"""Cells of a matrix → ``Plan``: exact wheels, index and base, or why the cell is impossible and what is nearest.

Base flavour (one CUDA in an image): wheels that bring CUDA get a plain distribution image, system-linked ones the
cudnn-runtime flavour of their CUDA. The GPU questions are asked only of ``targets``; without targets a cell is
judged by
what exists (wheel for that Python, machine, glibc; companions; base).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from gpuimg.errors import BadInput
from gpuimg.knowledge.base import Knowledge, version_key
from gpuimg.knowledge.images import newest_cuda_tag, read_image
from gpuimg.knowledge.requirement import parse_requirement, text_of
from gpuimg.knowledge.rules.companions import pins
from gpuimg.knowledge.rules.cudnn import exact, lowest
from gpuimg.knowledge.rules.driver import lowest_driver
from gpuimg.knowledge.rules.numbers import at_least, minor, parts
from gpuimg.knowledge.rules.one_cuda import needs_cudnn
from gpuimg.knowledge.rules.outcome import Outcome, combine, outcome
from gpuimg.knowledge.selection import rows_of
from gpuimg.knowledge.tables import Build
from gpuimg.nouns import BaseImage, Cell, Plan, Requirement


@lru_cache(maxsize=64)
def _plain_base(os_name: str) -> BaseImage:
    return BaseImage(_distribution(os_name), "registry", "distribution", None, os_name)


@dataclass(frozen=True)
class Target:
    """A server a cell must run on: a card by name, perhaps its driver."""

    gpu: str
    driver: str | None = None
    driver_cuda: str | None = None


CPU_PACKAGE = {"onnxruntime-gpu": "onnxruntime", "tensorflow": "tensorflow-cpu", "tensorflow-gpu": "tensorflow-cpu",
               "paddlepaddle-gpu": "paddlepaddle"}  # fmt: skip
"""Framework → the package that is its CPU build."""
GPU_PACKAGE = {"onnxruntime": "onnxruntime-gpu", "paddlepaddle": "paddlepaddle-gpu", "cupy": "cupy-cuda12x"}
SIZES_MIB = {"cuda12": 2700, "cuda13": 2300, "cuda11": 2000}
"""Unpacked size of the NVIDIA libraries a bundling wheel pulls in (measured with torch 2.1 to 2.13), MiB."""
UNPACKED = 2.1
"""Unpacked size of a framework wheel over its compressed size (measured over torch, tensorflow, onnxruntime wheels)."""
BASE_MIB = {"distribution": 80, "base": 240, "runtime": 2100, "cudnn-runtime": 3200, "devel": 6800}


def _distribution(os_name: str) -> str:
    """'ubuntu22.04' → 'ubuntu:22.04', 'rockylinux9' → 'rockylinux:9'."""
    found = re.fullmatch(r"([a-z]+)(\d[\d.]*)", os_name)
    return f"{found[1]}:{found[2]}" if found else os_name


def base_for(build: Build, os_name: str, knowledge: Knowledge) -> BaseImage | None:
    """The base a build goes on; None when a system-linked build has no published base on that OS (nor any other)."""
    if build.bundles_cuda or build.device == "cpu" or build.wheel_cuda is None:
        return _plain_base(os_name)
    flavour = "cudnn-runtime" if needs_cudnn(build) else "runtime"
    want = lowest(build.cudnn)
    cudnn_major = str(parts(want)[0]) if want and flavour == "cudnn-runtime" else None
    cuda = build.wheel_cuda
    reference = (
        newest_cuda_tag(knowledge, cuda, flavour=flavour, os=os_name, cudnn_major=cudnn_major) if "." in cuda else None
    )
    if reference is None:
        reference = _near_base(build, flavour, os_name, cudnn_major, knowledge)
    if reference is None:
        return None
    facts = read_image(reference, knowledge)
    return BaseImage(
        reference,
        "registry",
        "cudnn-runtime" if flavour == "cudnn-runtime" else "runtime",
        facts.base_cuda,
        facts.os or os_name,
    )


def _near_base(build: Build, flavour: str, os_name: str, cudnn_major: str | None, knowledge: Knowledge) -> str | None:
    """Another minor of the same CUDA major whose cuDNN serves, on the OS asked for; then any OS with the very CUDA."""
    from gpuimg.knowledge.rules.one_cuda import same_minor_needed

    assert build.wheel_cuda is not None
    want = lowest(build.cudnn)
    minors = sorted(
        {t.base_cuda for t in knowledge.base_tags if parts(t.base_cuda)[0] == parts(build.wheel_cuda)[0]}, key=parts
    )
    if not same_minor_needed(build):
        newer = [c for c in minors if at_least(c, build.wheel_cuda)]
        for cuda in minors[::-1] if "." not in build.wheel_cuda or not newer else newer:
            for row_os in (os_name,):
                found = newest_cuda_tag(knowledge, cuda, flavour=flavour, os=row_os, cudnn_major=cudnn_major)
                if found and _serves(found, want, knowledge):
                    return found
    if "." in build.wheel_cuda:
        return newest_cuda_tag(knowledge, build.wheel_cuda, flavour=flavour, cudnn_major=cudnn_major)
    return None


def _serves(reference: str, want: str | None, knowledge: Knowledge) -> bool:
    have = read_image(reference, knowledge).cudnn
    if have is None or want is None:
        return True
    depth = min(len(parts(have)), len(parts(want)))
    return parts(have)[0] == parts(want)[0] and parts(have)[:depth] >= parts(want)[:depth]


def package_of(cell: Cell) -> str:
    """The package a cell installs: the CPU build has another name for some frameworks."""
    if cell.device == "cpu":
        return CPU_PACKAGE.get(cell.framework, cell.framework)
    return GPU_PACKAGE.get(cell.framework, cell.framework)


@lru_cache(maxsize=8192)
def _of_version(package: str, version: str, knowledge: Knowledge) -> tuple[Build, ...]:
    wanted = version_key(version)
    return tuple(b for b in rows_of(package, knowledge) if version_key(b.version) == wanted)


def plan_cell(cell: Cell, *, targets: Sequence[Target] = (), knowledge: Knowledge) -> Plan:
    """The cell resolved, or refused with reasons and the nearest possible one.

    Raises BadInput (with file and line) for a framework, version or package line that cannot be read or is not known.
    """
    package = package_of(cell)
    rows = rows_of(package, knowledge)
    if not rows:
        raise BadInput.at(
            cell.file or cell.id,
            cell.line,
            f"unknown framework {cell.framework!r}",
            allowed=knowledge.frameworks(),
            value=cell.framework,
        )
    builds = [b for b in _of_version(package, cell.version, knowledge) if b.machine == cell.machine]
    if not builds:
        return _no_version(cell, package, knowledge)
    kept, problem = _choose(cell, builds)
    if not kept:
        refused = outcome("wheel", "no", problem, builds[0].source)
        return _refused(cell, [refused], knowledge, nearest=_near_cuda(cell, builds))
    verdicts = [_judged(cell, build, targets, knowledge) for build in kept]
    order = {"fits": 0, "fits-with-compat": 1, "fits-via-ptx": 2, "unknown": 3, "does-not-fit": 4}
    build, outcomes, base = min(verdicts, key=lambda v: order[combine(v[1])])
    verdict = combine(outcomes)
    if verdict in {"does-not-fit", "unknown"}:
        return replace(
            _refused(cell, outcomes, knowledge, nearest=_advice(cell, build, targets, knowledge)),
            verdict=verdict,
            wheel_cuda=build.wheel_cuda,
        )
    return _plan(cell, build, base, outcomes, knowledge)


def _choose(cell: Cell, builds: Sequence[Build]) -> tuple[list[Build], str]:
    """Builds of the device and CUDA the cell asks for, the preferred one first."""
    if cell.device == "cpu":
        kept = [b for b in builds if b.device == "cpu" and not any("ROCm" in n for n in b.notes)]
        kept.sort(key=lambda b: (b.local != "cpu", not b.default))
        if kept:
            return kept, ""
        default = [b for b in builds if b.default]
        return default, f"{cell.framework} {cell.version} has no CPU build"
    gpu = [b for b in builds if b.device == "cuda" and b.index != "none" and not (b.extra or "").endswith("local")]
    if cell.framework == "tensorflow" and any(b.extra == "and-cuda" for b in gpu):
        gpu = [b for b in gpu if b.extra == "and-cuda"]
    gpu = [b for b in gpu if b.extra not in {"cuda", "cuda12-pip", "cuda11-pip"}] or gpu
    if not gpu:
        return [], f"{cell.framework} {cell.version} has no CUDA build for {cell.machine}"
    if cell.cuda in {None, "auto"}:
        top = max((b.wheel_cuda or "0" for b in gpu), key=parts)
        return sorted((b for b in gpu if (b.wheel_cuda or "0") == top), key=lambda b: b.index != "pypi"), ""
    assert cell.cuda is not None
    kept = [
        b
        for b in gpu
        if b.wheel_cuda and (minor(b.wheel_cuda) == minor(cell.cuda) or b.wheel_cuda == cell.cuda.split(".")[0])
    ]
    kept.sort(key=lambda b: (b.index != "pypi", "." not in (b.wheel_cuda or "")))
    have = ", ".join(sorted({b.wheel_cuda for b in gpu if b.wheel_cuda}, key=parts))
    return kept, f"{cell.framework} {cell.version} has no build for CUDA {cell.cuda} (wheel_cuda); there is {have}"


def _judged(
    cell: Cell, build: Build, targets: Sequence[Target], knowledge: Knowledge
) -> tuple[Build, list[Outcome], BaseImage | None]:
    from gpuimg.knowledge.fit import judge
    from gpuimg.knowledge.judging import judge_general
    from gpuimg.knowledge.situation import Question, Wanted, situate

    base = base_for(build, cell.os, knowledge)
    outcomes: list[Outcome] = []
    requirement = _requirement(build)
    if base is None:
        outcomes.append(
            outcome(
                "base",
                "no",
                f"no published CUDA {build.wheel_cuda} base with cuDNN {build.cudnn or ''} for {cell.os}",
                build.source,
            )
        )
    elif base.os != cell.os:
        outcomes.append(
            outcome(
                "base",
                "no",
                f"CUDA {build.wheel_cuda} has no published cudnn-runtime base on {cell.os}; "
                f"{base.reference} is the nearest",
                build.source,
                fix=f"os: {base.os}",
            )
        )
    packages = [_package(line, cell, knowledge) for line in cell.packages]
    extra = tuple(p for p in packages if rows_of(p.name, knowledge))
    question = Question(
        requirements=(requirement, *extra),
        python=cell.python,
        os=cell.os,
        machine=cell.machine,
        runtime="docker",
        base=base.reference if base is not None and not build.bundles_cuda and build.device != "cpu" else None,
    )
    if not targets:
        situation = situate(question, knowledge)
        outcomes.extend(judge_general(Wanted(requirement, "command line"), build, situation, knowledge))
        outcomes.append(
            outcome("wheel", "yes", f"{build.framework} {build.version} is published for {cell.machine}", build.source)
        )
        if extra:
            outcomes.extend(_companions(situation, build, knowledge))
    for target in targets:
        asked = replace(question, gpus=(target.gpu,), driver=target.driver, driver_cuda=target.driver_cuda)
        judged = judge(situate(asked, knowledge), knowledge)
        kept = [o for o in judged.outcomes if target.driver or target.driver_cuda or o.missing != ("driver",)]
        outcomes.extend(o for o in kept if cell.device != "cpu" or o.finding.rule not in {"cpu-only"})
    if cell.cudnn not in {None, "auto"} and cell.device != "cpu":
        outcomes.extend(_cudnn(cell, build))
    return build, outcomes, base


def _companions(situation: object, build: Build, knowledge: Knowledge) -> list[Outcome]:
    from gpuimg.knowledge.fit import _asked_of, select
    from gpuimg.knowledge.rules.companions import judge_loaded_libraries, judge_pins, judge_shared_libraries
    from gpuimg.knowledge.situation import Situation

    assert isinstance(situation, Situation)
    evaluations, _ = select(situation, knowledge)
    asked = [_asked_of(e) for e in evaluations]
    general = [o for e in evaluations if e.build.framework != build.framework for o in e.general]
    return [*judge_pins(asked), *judge_shared_libraries(asked), *judge_loaded_libraries(asked), *general]


def _cudnn(cell: Cell, build: Build) -> list[Outcome]:
    assert cell.cudnn is not None
    have = build.cudnn
    if have is None:
        return []
    asked = parts(cell.cudnn)
    if exact(have):
        depth = min(len(asked), len(parts(have)))
        same = asked[:depth] == parts(have)[:depth]
        text = f"{build.framework} {build.version} comes with cuDNN {have}; {cell.cudnn} is asked for"
        return [
            outcome(
                "cudnn", "yes" if same else "no", text, build.source, fix=None if same else f"cudnn: {have} or auto"
            )
        ]
    return []


def _requirement(build: Build) -> Requirement:
    extras = (build.extra,) if build.extra else ()
    label = (
        build.local
        if build.local and not build.version.endswith(build.local) and re.match(r"cu\d|cpu", build.local)
        else None
    )
    return Requirement(name=build.framework, specifier=f"=={build.version}", local=label, extras=extras)


def _package(line: str, cell: Cell, knowledge: Knowledge) -> Requirement:
    try:
        return _parsed(line, knowledge)
    except BadInput:
        parse_requirement(line, aliases=knowledge.aliases, file=cell.file or None, line=cell.line)
        raise


@lru_cache(maxsize=4096)
def _parsed(line: str, knowledge: Knowledge) -> Requirement:
    return parse_requirement(line, aliases=knowledge.aliases)


def _plan(cell: Cell, build: Build, base: BaseImage | None, outcomes: Sequence[Outcome], knowledge: Knowledge) -> Plan:
    requirement = _requirement(build)
    requirements = [text_of(requirement)]
    numpy = pins(build).get("numpy")
    if (
        numpy is not None
        and not any(v in numpy for v in ("2.0.2", "2.2.0", "2.4.0"))
        and not any(p.lower().startswith("numpy") for p in cell.packages)
    ):
        requirements.append("numpy<2")
    requirements.extend(cell.packages)
    sm = build.sm or ()
    return Plan(
        cell=cell,
        verdict=combine(outcomes),
        findings=tuple(o.finding for o in outcomes),
        version=build.version,
        wheel_cuda=build.wheel_cuda if build.device == "cuda" else None,
        cudnn=build.cudnn if build.device == "cuda" else None,
        nccl=build.nccl if build.device == "cuda" else None,
        python=cell.python,
        base=base,
        index_url=build.index_url,
        requirements=tuple(requirements),
        sm=tuple(sm),
        min_driver=lowest_driver(build.wheel_cuda, knowledge)
        if build.device == "cuda" and build.wheel_cuda and cell.device == "cuda"
        else None,
        estimated_mib=estimate_mib(build, base),
    )


def estimate_mib(build: Build, base: BaseImage | None) -> int | None:
    """Unpacked size of the image in MiB, roughly; None when the wheel's size is not known."""
    if build.size_mib is None:
        sizes = {"torch": 850 if build.device == "cuda" else 190, "tensorflow": 600, "paddlepaddle-gpu": 700}
        wheel = sizes.get(build.framework)
        if wheel is None:
            return None
    else:
        wheel = build.size_mib
    total = BASE_MIB[base.flavour] if base else 0
    total += round(wheel * UNPACKED) + 150
    if (build.bundles_cuda and build.device == "cuda" and build.wheel_cuda and build.framework != "torch") or (
        build.framework == "torch" and build.device == "cuda" and build.index == "pypi" and build.wheel_cuda
    ):
        total += SIZES_MIB.get(f"cuda{parts(build.wheel_cuda)[0]}", 2500)
    if build.framework in {"vllm", "sglang", "tensorrt-llm"}:
        total += 4200
    return total


def _refused(
    cell: Cell, outcomes: Sequence[Outcome], knowledge: Knowledge, *, nearest: Sequence[dict[str, object]] = ()
) -> Plan:
    verdict = combine(outcomes)
    return Plan(
        cell=cell,
        verdict=verdict,
        findings=tuple(o.finding for o in outcomes),
        version=cell.version,
        wheel_cuda=None,
        cudnn=None,
        nccl=None,
        python=cell.python,
        base=None,
        index_url=None,
        requirements=(),
        instead=tuple(dict(n) for n in nearest),
    )


def _near_cuda(cell: Cell, builds: Sequence[Build]) -> list[dict[str, object]]:
    """The same version in a CUDA it has, the nearest to the one asked for first."""
    have = [b for b in builds if b.device == ("cpu" if cell.device == "cpu" else "cuda") and b.wheel_cuda]
    wanted = parts(cell.cuda or "0")

    def distance(build: Build) -> tuple[int, ...]:
        number = parts(build.wheel_cuda or "0")
        return (abs(number[0] - wanted[0]) * 100 + abs((number[1:] or (0,))[0] - (wanted[1:] or (0,))[0]),)

    out: list[dict[str, object]] = []
    for build in sorted(have, key=distance):
        entry: dict[str, object] = {
            "requirement": {cell.framework: build.version},
            "cuda": build.wheel_cuda,
            "index_url": build.index_url,
            "why": "the same version in a CUDA it is published for",
        }
        if entry not in out:
            out.append(entry)
    return out[:2]


def _advice(cell: Cell, build: Build, targets: Sequence[Target], knowledge: Knowledge) -> list[dict[str, object]]:
    """The nearest cell that is possible: another Python of the same build, or what runs on the targets."""
    out: list[dict[str, object]] = []
    if build.pythons and cell.python not in build.pythons:
        nearest = min(
            build.pythons, key=lambda p: abs(parts(p)[1] - parts(cell.python)[1]) if len(parts(cell.python)) > 1 else 0
        )
        out.append(
            {
                "requirement": {cell.framework: build.version},
                "python": nearest,
                "why": f"the nearest Python {cell.framework} {build.version} has a wheel for",
            }
        )
        best = _near_version(build.framework, build.device, cell.machine, cell.python, cell.version, knowledge)
        if best is not None:
            out.append(
                {
                    "requirement": {cell.framework: best},
                    "python": cell.python,
                    "why": f"the nearest version with a wheel for Python {cell.python}",
                }
            )
    if targets:
        from gpuimg.knowledge.fit import answer
        from gpuimg.knowledge.situation import Question

        for target in targets:
            got = answer(
                Question(
                    requirements=(_requirement(build),),
                    gpus=(target.gpu,),
                    driver=target.driver,
                    driver_cuda=target.driver_cuda,
                    python=cell.python,
                    os=cell.os,
                    machine=cell.machine,
                ),
                knowledge,
            )
            if got.verdict == "does-not-fit":
                out.extend(got.instead[:2])
                break
    return out


@lru_cache(maxsize=4096)
def _near_version(
    framework: str, device: str | None, machine: str, python: str, version: str, knowledge: Knowledge
) -> str | None:
    """The version nearest to the one asked for that has a wheel for that Python."""
    have = {
        b.version
        for b in knowledge.builds(framework)
        if b.machine == machine and b.device == device and b.pythons and python in b.pythons
    }
    return min(have, key=lambda v: abs(_rank(v) - _rank(version))) if have else None


@lru_cache(maxsize=8192)
def _rank(version: str) -> int:
    key = version_key(version).release
    return sum(n * 10 ** (2 * (3 - i)) for i, n in enumerate((*key, 0, 0, 0)[:4]))


def _no_version(cell: Cell, package: str, knowledge: Knowledge) -> Plan:
    rows = _of_version(package, cell.version, knowledge)
    if rows:
        found = outcome(
            "wheel",
            "no",
            f"{package} {cell.version} has no wheel for {cell.machine}, only for "
            f"{', '.join(sorted({b.machine for b in rows}))}",
            rows[0].source,
        )
        return _refused(cell, [found], knowledge)
    known = tuple(dict.fromkeys(b.version for b in rows_of(package, knowledge)))
    newer = version_key(cell.version) > version_key(known[-1])
    what = f"newer than the data ({knowledge.date}, newest {known[-1]})" if newer else "no such version is known"
    near = sorted(known, key=lambda v: abs(_rank(v) - _rank(cell.version)))[:3]
    found = outcome(
        "version",
        "unknown",
        f"{package} {cell.version}: {what}; nearest: {', '.join(near)}",
        f"knowledge base of {knowledge.date}",
    )
    return _refused(
        cell,
        [found],
        knowledge,
        nearest=[{"requirement": {cell.framework: v}, "why": "a version that is known"} for v in near[:1]],
    )
