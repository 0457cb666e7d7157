"""A question about a server, brought into plain facts: which cards, driver, Python, glibc, machine, base and packages.

What was said outranks what follows: ``--python`` before the project's files, before the image, before the distribution.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from gpuimg.knowledge.base import Knowledge
from gpuimg.knowledge.gpunames import Card, card_of, identify
from gpuimg.knowledge.images import ImageFacts, read_image
from gpuimg.knowledge.requirement import applies, label_cuda, merge
from gpuimg.knowledge.rules.driver import DriverFacts, Forward, read_driver
from gpuimg.knowledge.rules.numbers import parts
from gpuimg.nouns import Host, ProjectNeeds, Requirement, Runtime

Origin = Literal["command line", "file", "conda", "image"]
CONDA_NAMES = {"pytorch": "torch", "pytorch-gpu": "torch", "pytorch-cpu": "torch", "tensorflow-gpu": "tensorflow"}
"""conda's name → PyPI's."""
CONDA_NAMES = {"pytorch": "torch", "pytorch-gpu": "torch", "pytorch-cpu": "torch", "tensorflow-gpu": "tensorflow"}
"""conda's name → PyPI's."""
CONDA_PARTS = frozenset(
    {"pytorch-cuda", "cudatoolkit", "cuda-version", "cpuonly", "pytorch-mutex", "python", "pip", "cudnn"}
)
"""conda packages that say how the others are built."""
ARM_ONLY = ("GB10", "GH200", "GB200", "GB300", "Thor", "Orin", "Xavier", "Tegra")
"""Cards that only come with an aarch64 processor."""


@dataclass(frozen=True)
class Question:
    """What is asked. Everything may be missing. ``gpus`` are names as written ('RTX 4090:2'), ``host`` what was
    parsed."""

    requirements: tuple[Requirement, ...] = ()
    needs: ProjectNeeds | None = None
    gpus: tuple[str, ...] = ()
    host: Host = field(default_factory=Host)
    driver: str | None = None
    driver_cuda: str | None = None
    sole_index: bool = False
    """The files replace PyPI (--index-url) instead of adding to it (--extra-index-url)."""
    base: str | None = None
    image: ImageFacts | None = None
    """A built image's own labels and config, instead of ``base``."""
    python: str | None = None
    os: str | None = None
    glibc: str | None = None
    machine: str | None = None
    runtime: Runtime | None = None


@dataclass(frozen=True)
class Wanted:
    """One package asked for, and where it comes from."""

    requirement: Requirement
    origin: Origin

    @property
    def name(self) -> str:
        return self.requirement.name


@dataclass(frozen=True)
class Situation:
    """The question as plain facts; what is None is not known (or free to choose)."""

    wanted: tuple[Wanted, ...]
    cards: tuple[Card, ...]
    driver: DriverFacts
    base: ImageFacts | None
    python: str | None
    python_soft: bool
    """The Python is the distribution's own: another can be installed."""
    python_range: str | None
    glibc: str | None
    glibc_where: str
    os: str | None
    machine: str
    runtime: Runtime
    index_urls: tuple[str, ...]
    sole_index: bool
    toolkit: str | None
    """CUDA installed on the host: counts on a bare host only."""
    host_cudnn: str | None
    cdi: bool
    """NVIDIA_REQUIRE_CUDA is not evaluated by the runtime in use."""
    files: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def forward(self) -> Forward | None:
        """The cuda-compat package of the base, when it has one and a container is used."""
        if self.base is None or not self.base.compat_package or self.base.base_cuda is None or self.runtime == "bare":
            return None
        from gpuimg.knowledge.require import admitted_branches

        admitted = admitted_branches(self.base.require) if self.base.require else ()
        return Forward(self.base.base_cuda, admitted)

    def allows_python(self, python: str) -> bool:
        """Is that Python within the project's own range?"""
        if self.python_range is None:
            return True
        try:
            return SpecifierSet(self.python_range).contains(f"{python}.0") or SpecifierSet(self.python_range).contains(
                f"{python}.99"
            )
        except InvalidSpecifier:
            return True


def situate(question: Question, knowledge: Knowledge) -> Situation:
    """Question → plain facts. Pure; raises nothing."""
    needs, host = question.needs, question.host
    reference = question.base or (needs.base if needs else None)
    base = question.image or (read_image(reference, knowledge) if reference else None)
    cards = _cards(question, knowledge)
    runtime: Runtime = question.runtime or host.runtime or "docker"
    machine = question.machine or _machine(cards, host)
    driver = read_driver(
        question.driver or host.driver,
        question.driver_cuda or host.driver_cuda,
        knowledge,
        windows=_windows(question, runtime),
    )
    python, soft, allowed = _python(question, needs, base, host, runtime, knowledge)
    glibc, where, os_name = _glibc(question, base, host, runtime, knowledge)
    wanted = _wanted(question, needs, base, python, machine, knowledge)
    return Situation(
        wanted=wanted,
        cards=cards,
        driver=driver,
        base=base,
        python=python,
        python_soft=soft,
        python_range=allowed,
        glibc=glibc,
        glibc_where=where,
        os=os_name,
        machine=machine,
        runtime=runtime,
        index_urls=needs.index_urls if needs else (),
        sole_index=question.sole_index,
        toolkit=host.toolkit if runtime == "bare" else None,
        host_cudnn=host.cudnn if runtime == "bare" else None,
        cdi=_cdi(host),
        files=needs.files if needs else (),
        notes=needs.notes if needs else (),
    )


def _cards(question: Question, knowledge: Knowledge) -> tuple[Card, ...]:
    cards = [identify(text, knowledge) for text in question.gpus]
    if not cards:
        cards = [card_of(gpu, knowledge) for gpu in question.host.gpus]
    return _grouped(cards)


def _grouped(cards: Sequence[Card]) -> tuple[Card, ...]:
    """Equal cards become one with a count."""
    grouped: dict[Card, int] = {}
    for card in cards:
        one = replace(card, count=1, text=card.name)
        grouped[one] = grouped.get(one, 0) + card.count
    return tuple(replace(card, count=count) for card, count in grouped.items())


def _machine(cards: Sequence[Card], host: Host) -> str:
    for card in cards:
        names = (card.name, *card.models)
        if any(word.lower() in name.lower() for name in names for word in ARM_ONLY):
            return "aarch64"
        if card.compute_capability in {"5.3", "6.2", "7.2", "8.7", "11.0", "12.1"}:
            return "aarch64"
    return host.machine


def _windows(question: Question, runtime: Runtime) -> bool:
    """On WSL2 nvidia-smi prints the Windows driver. Linux numbers given by hand keep working: only known ones count."""
    return runtime == "wsl2" or bool(question.host.details.get("windows"))


def _python(
    question: Question,
    needs: ProjectNeeds | None,
    base: ImageFacts | None,
    host: Host,
    runtime: Runtime,
    knowledge: Knowledge,
) -> tuple[str | None, bool, str | None]:
    allowed = None
    if question.python:
        return _short(question.python), False, None
    if needs and needs.python:
        if re.fullmatch(r"\d+\.\d+(\.\d+)?", needs.python):
            return _short(needs.python), False, None
        allowed = needs.python
    if base is not None and base.python:
        hard = base.python_installed or bool(needs and needs.base and question.base is None)
        return base.python, not hard, allowed
    if base is None and runtime != "docker":
        if host.python:
            return _short(host.python), False, allowed
        system = question.os or host.os
        own = knowledge.python_of_os(system) if system else None
        if own:
            return own, True, allowed
    if base is None and question.os:
        own = knowledge.python_of_os(question.os)
        return own, True, allowed
    return None, False, allowed


def _short(python: str) -> str:
    found = re.search(r"(\d+)\.(\d+)", python)
    if found:
        return f"{found[1]}.{found[2]}"
    packed = re.fullmatch(r"(?:cp|py|python)?3(\d{1,2})", python.strip().lower())
    return f"3.{int(packed[1])}" if packed else python


def _glibc(
    question: Question, base: ImageFacts | None, host: Host, runtime: Runtime, knowledge: Knowledge
) -> tuple[str | None, str, str | None]:
    if question.glibc:
        return question.glibc, f"glibc {question.glibc} as given", question.os
    if question.os:
        return knowledge.glibc_of_os(question.os), question.os, question.os
    if base is not None and base.glibc:
        return base.glibc, f"{base.os or base.reference}", base.os
    if runtime != "docker" and base is None:
        if host.glibc:
            return host.glibc, "the host", host.os
        if host.os:
            return knowledge.glibc_of_os(host.os), host.os, host.os
    return None, "the base", None


def _cdi(host: Host) -> bool:
    version = host.details.get("container_toolkit")
    mode = str(host.details.get("runtime_mode", "")).lower()
    if mode == "legacy":
        return False
    return "cdi" in mode or (isinstance(version, str) and parts(version) >= (1, 18))


def _wanted(
    question: Question,
    needs: ProjectNeeds | None,
    base: ImageFacts | None,
    python: str | None,
    machine: str,
    knowledge: Knowledge,
) -> tuple[Wanted, ...]:
    found: dict[str, Wanted] = {}

    def add(requirements: Sequence[Requirement], origin: Origin) -> None:
        kept = [r for r in requirements if applies(r, python=python, machine=machine)]
        for one in merge(kept):
            have = found.get(one.name)
            if have is None or origin == "command line":
                found[one.name] = Wanted(one, origin)

    add(question.requirements, "command line")
    if needs is not None:
        add(needs.requirements, "file")
        add(_conda(needs.conda), "conda")
    if base is not None:
        add(_installed(base, knowledge), "image")
    return tuple(found.values())


def _conda(requirements: Sequence[Requirement]) -> list[Requirement]:
    """conda names its CUDA in a package of its own (pytorch-cuda=12.1, cudatoolkit=11.3): put it where pip has it."""
    cuda = None
    for one in requirements:
        if one.name in {"pytorch-cuda", "cudatoolkit", "cuda-version"}:
            number = re.search(r"(\d+\.\d+)", one.specifier)
            cuda = number[1] if number else cuda
    cpu = any(one.name == "cpuonly" for one in requirements)
    out = []
    for one in requirements:
        one = replace(one, name=CONDA_NAMES.get(one.name, one.name))
        if one.name in CONDA_PARTS:
            continue
        if one.name in {"torch", "torchvision", "torchaudio"} and one.local is None:
            label = "cpu" if cpu else "cu" + cuda.replace(".", "") if cuda else None
            one = replace(one, local=label)
        out.append(one)
    return out


def _installed(base: ImageFacts, knowledge: Knowledge) -> list[Requirement]:
    """Frameworks already in the image, as requirements; its CUDA names their build. NGC's are builds of their own."""
    if base.kind == "ngc" or base.cpu_only:
        return []
    label = "cu" + base.base_cuda.replace(".", "") if base.base_cuda else None
    out = []
    for name, version in base.frameworks:
        if name == "paddlepaddle-gpu" and label and knowledge.builds(name, f"{version}.post{label[2:]}"):
            # Paddle of old puts the CUDA into the version.
            version = f"{version}.post{label[2:]}"
        exact = bool(knowledge.builds(name, version)) and version.count(".") >= 2
        out.append(Requirement(name=name, specifier=f"=={version}" if exact else f"=={version}.*", local=label))
    return out


def wanted_cuda(requirement: Requirement) -> str | None:
    """The wheel_cuda a label or a version's postNNN names."""
    if requirement.local:
        return label_cuda(requirement.local)
    found = re.search(r"\.post(\d{2,3})$", requirement.specifier)
    return label_cuda(f"post{found[1]}") if found and requirement.name.startswith("paddle") else None
