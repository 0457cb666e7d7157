"""Image references → what they say about the image. Table first (nvidia/cuda, pytorch, tensorflow, NGC, vLLM), then the
tag's own words, for any publisher: ``cuda11.8_cudnn8.6_tf2.12.0_torch2.1.2_py3.8``. A number nobody labelled is no
fact:
``nvcr.io/nvidia/pytorch:23.10-py3`` holds a release month, not a CUDA version.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from packaging.utils import canonicalize_name

from gpuimg.knowledge.base import Knowledge, version_key
from gpuimg.knowledge.tables import BaseTag, KnownImage

Kind = Literal["cuda", "framework", "ngc", "distribution", "third-party", "rocm", "jetson", "unknown"]


@dataclass(frozen=True)
class ImageFacts:
    """What a reference tells. None: it does not say. ``frameworks`` are what is already installed, name → version."""

    reference: str
    repository: str
    tag: str | None
    digest: str | None
    kind: Kind
    base_cuda: str | None = None
    cudnn: str | None = None
    flavour: str | None = None
    os: str | None = None
    glibc: str | None = None
    python: str | None = None
    python_installed: bool = False
    """True when the image surely comes with that Python; False when it is merely the distribution's."""
    frameworks: tuple[tuple[str, str], ...] = ()
    cpu_only: bool = False
    require: str | None = None
    """NVIDIA_REQUIRE_CUDA, where known."""
    compat_package: bool = False
    deleted: bool = False
    end_of_life: str | None = None
    min_driver: str | None = None
    sm: tuple[str, ...] | None = None
    cc_min: str | None = None
    notes: tuple[str, ...] = ()
    problem: str | None = None
    """Why nothing is known."""
    source: str = ""


_DISTRIBUTIONS = (
    (r"(?:^|/)(ubuntu)$", "ubuntu"), (r"(?:^|/)(debian|buildpack-deps)$", "debian"), (r"(?:^|/)(centos)$", "centos"),
    (r"(?:^|/)(rockylinux|rocky)$", "rockylinux"), (r"(?:^|/)(almalinux|alma)$", "rockylinux"),
    (r"(?:^|/)(amazonlinux)$", "amazonlinux"), (r"(?:^|/)ubi(\d+)(?:/ubi.*|-minimal|-init)?$", "rockylinux"),
)  # fmt: skip
_CODENAMES = {
    "xenial": "ubuntu16.04", "bionic": "ubuntu18.04", "focal": "ubuntu20.04", "jammy": "ubuntu22.04",
    "noble": "ubuntu24.04",
    "stretch": "debian9", "buster": "debian10", "bullseye": "debian11", "bookworm": "debian12", "trixie": "debian13",
}  # fmt: skip
_PYTHON_IMAGE_OS = {"3.7": "debian12", "3.8": "debian12", "3.9": "debian13"}
"""Debian of the newest ``python:X`` image where it is no longer the current one (docker-library/python history)."""

_FRAMEWORK_WORDS: tuple[tuple[str, str], ...] = (
    (r"(?<![a-z])(?:pytorch|torch|pth|pt|th)[-_]?v?(\d+\.\d+(?:\.\d+)?)", "torch"),
    (r"(?<![a-z])(?:pytorch|torch)[-_]?([12])(\d{1,2})(?![\d.])", "torch"),
    (r"(?<![a-z])(?:tensorflow[-_]gpu|tensorflow|tf)[-_]?v?(\d+\.\d+(?:\.\d+)?)", "tensorflow"),
    (r"(?<![a-z])(?:tensorflow|tf)([12])[-_](\d{1,2})(?![\d.])", "tensorflow"),
    (r"(?<![a-z])(?:paddlepaddle|paddle)[-_]?(?:gpu[-_]?)?v?(\d+\.\d+\.\d+)", "paddlepaddle-gpu"),
    (r"(?<![a-z])mindspore[-_]?(?:gpu[-_]?)?v?(\d+\.\d+(?:\.\d+)?)", "mindspore"),
    (r"(?<![a-z])jax[-_]?v?(\d+\.\d+\.\d+)", "jax"),
    (r"(?<![a-z])vllm[-_]?v?(\d+\.\d+(?:\.\d+)?(?:\.post\d+)?)", "vllm"),
    (r"(?<![a-z])sglang[-_]?v?(\d+\.\d+(?:\.\d+)?(?:\.post\d+)?)", "sglang"),
    (r"(?<![a-z])(?:onnxruntime[-_]gpu|onnxruntime|ort)[-_]?v?(\d+\.\d+\.\d+)", "onnxruntime-gpu"),
    (r"(?<![a-z])flash[-_]?attn[-_]?v?(\d+\.\d+(?:\.\d+)?(?:\.post\d+)?)", "flash-attn"),
    (r"(?<![a-z])flash[-_]?attention[-_]?v?(\d+\.\d+(?:\.\d+)?(?:\.post\d+)?)", "flash-attn"),
    (r"(?<![a-z])xformers[-_]?v?(\d+\.\d+\.\d+(?:\.post\d+)?)", "xformers"),
)
_NAMED: tuple[tuple[str, str], ...] = (
    (r"(?:^|[/_-])(?:pytorch|torch)(?:$|[-_])", "torch"), (r"(?:^|[/_-])tensorflow(?:$|[-_])", "tensorflow"),
    (r"(?:^|[/_-])paddle(?:paddle)?(?:$|[-_])", "paddlepaddle-gpu"), (r"(?:^|[/_-])mindspore(?:$|[-_])", "mindspore"),
    (r"(?:^|[/_-])vllm(?:-openai)?(?:$|[-_])", "vllm"), (r"(?:^|[/_-])sglang(?:$|[-_])", "sglang"),
    (r"(?:^|[/_-])jax(?:$|[-_])", "jax"),
)  # fmt: skip
"""Repository name → the framework whose version a bare number at the start of the tag is."""


def split_reference(reference: str) -> tuple[str, str | None, str | None]:
    """'docker.io/library/ubuntu:22.04@sha256:…' → ('docker.io/library/ubuntu', '22.04', 'sha256:…')."""
    rest, at, digest = reference.strip().partition("@")
    head, slash, last = rest.rpartition("/")
    name, colon, tag = last.partition(":")
    return f"{head}{slash}{name}", (tag if colon else None), (digest if at else None)


def _short(repository: str) -> str:
    """The repository without registry and mirror prefixes: 'docker.m.daocloud.io/nvidia/cuda' → 'nvidia/cuda'."""
    parts = repository.lower().split("/")
    while len(parts) > 1 and ("." in parts[0] or ":" in parts[0] or parts[0] in {"localhost", "library", "docker.io"}):
        if parts[0] == "nvcr.io":
            break
        parts = parts[1:]
    return "/".join(parts)


def _tag_os(text: str) -> str | None:
    for pattern, form in (
        (r"ubuntu[-_:]?(\d\d)\.?(04|10)", "ubuntu{0}.{1}"), (r"debian[-_:]?(\d{1,2})", "debian{0}"),
        (r"centos[-_:]?(?:stream)?(\d)", "centos{0}"),
        (r"(?:rockylinux|rocky|almalinux|alma|ubi|rhel|el)[-_:]?(\d{1,2})", "rockylinux{0}"),
        (r"(?:amazonlinux|amzn|al)[-_]?(2023|2)(?!\d)", "amazonlinux{0}"),
    ):  # fmt: skip
        found = re.search(rf"(?<![a-z]){pattern}", text)
        if found:
            name = form.format(*found.groups())
            return "centos7" if name == "rockylinux7" else name
    for word, name in _CODENAMES.items():
        if re.search(rf"(?<![a-z]){word}(?![a-z])", text):
            return name
    return None


def _tag_cuda(text: str) -> str | None:
    found = re.search(r"(?<![a-z])(?:cuda|cu)[-_ :]?v?(\d{1,2})[._](\d{1,2})", text)
    if found:
        return f"{int(found[1])}.{int(found[2])}"
    found = re.search(r"(?<![a-z])(?:cuda|cu)[-_]?(\d{1,2})(\d)(?!\d)", text)
    if found:
        return f"{int(found[1])}.{found[2]}"
    found = re.search(r"(?<![a-z])(?:cuda|cu)[-_]?(\d{2})(?![\d.])", text)
    return found[1] if found else None


def _tag_python(text: str) -> str | None:
    found = re.search(r"(?<![a-z])(?:python|py|cp)[-_ :]?3\.?(\d{1,2})(?!\d)", text)
    return f"3.{int(found[1])}" if found else None


def _tag_cudnn(text: str) -> str | None:
    found = re.search(r"cudnn[-_]?v?(\d+(?:\.\d+)*)", text)
    return found[1].rstrip(".") if found else None


def _named_framework(repository: str) -> str | None:
    last = repository.rsplit("/", 1)[-1]
    for pattern, name in _NAMED:
        if re.search(pattern, last):
            return name
    return None


def _tag_frameworks(repository: str, tag: str) -> dict[str, str]:
    text = f"{repository.rsplit('/', 1)[-1]}:{tag}".lower()
    found: dict[str, str] = {}
    for pattern, name in _FRAMEWORK_WORDS:
        if name in found:
            continue
        hit = re.search(pattern, text)
        if hit:
            found[name] = hit[1] if len(hit.groups()) == 1 else f"{hit[1]}.{hit[2]}"
    named = _named_framework(repository.lower())
    leading = re.match(r"v?(\d+\.\d+(?:\.\d+)?(?:\.post\d+)?(?:rc\d+)?)(?![\d.])", tag)
    if named and named not in found and leading:
        found[named] = leading[1]
    dotted = re.search(r"cu\d{2,3}\.(\d)-(\d{1,2})(?:\.|$)", text)
    if named and named not in found and dotted:
        found[named] = f"{dotted[1]}.{dotted[2]}"
    return found


def _with_os(facts: ImageFacts, knowledge: Knowledge) -> ImageFacts:
    if facts.os is None:
        return facts
    release = knowledge.os(facts.os)
    if release is None:
        return facts
    eol = facts.end_of_life or release.end_of_life
    return replace(facts, glibc=facts.glibc or release.glibc, python=facts.python or release.python, end_of_life=eol)


@lru_cache(maxsize=4096)
def read_image(reference: str, knowledge: Knowledge) -> ImageFacts:
    """Everything a reference says. Never raises: what cannot be read has ``problem`` set."""
    repository, tag, digest = split_reference(reference)
    short = _short(repository)
    known_tag = tag or ("" if digest else "latest")
    facts = ImageFacts(reference=reference, repository=short, tag=tag, digest=digest, kind="unknown")
    text = f"{short}:{known_tag}".lower()
    if re.search(r"(^|[/:_-])(rocm|amd)", text) and "nvidia" not in text:
        return replace(facts, kind="rocm", notes=("a ROCm image: for AMD cards only",))
    if re.search(r"l4t|jetson|jetpack|dustynv", text):
        facts = replace(facts, kind="jetson", notes=("a Jetson (L4T) image: runs on Jetson boards only",))
    if short in {"nvidia/cuda", "nvcr.io/nvidia/cuda", "nvidia/cuda-arm64", "nvidia/cuda-ppc64le", "cuda"}:
        return _cuda(facts, known_tag, knowledge)
    listed = _listed(facts, short, known_tag, knowledge)
    if listed is not None:
        return listed
    distribution = _distribution(facts, short, known_tag, knowledge)
    if distribution is not None:
        return distribution
    return _words(facts, short, known_tag, knowledge)


def _cuda(facts: ImageFacts, tag: str, knowledge: Knowledge) -> ImageFacts:
    row = next((r for r in knowledge.base_tags if r.tag == tag), None)
    if row is not None:
        return _with_os(
            replace(
                facts,
                kind="cuda",
                base_cuda=row.base_cuda,
                cudnn=row.cudnn,
                flavour=row.flavour,
                os=row.os,
                require=row.require,
                compat_package=row.compat_package,
                deleted=row.deleted,
                source=row.source,
                end_of_life=_date(row.end_of_life),
            ),
            knowledge,
        )
    found = re.match(r"^(\d{1,2}\.\d{1,2})(\.\d+)?(?:-|$)", tag)
    if not found:
        near = [r.tag for r in knowledge.base_tags if tag and tag in r.tag][-3:]
        hint = f"; nearest: {', '.join(near)}" if near else ""
        return replace(facts, kind="cuda", problem=f"nvidia/cuda has no tag {tag!r} that names its CUDA{hint}")
    base_cuda = found[1]
    same = [r for r in knowledge.base_tags if r.base_cuda == base_cuda]
    flavour = "devel" if "devel" in tag else "runtime" if "runtime" in tag else "base" if "base" in tag else "devel"
    cudnn = _tag_cudnn(tag)
    if "cudnn" in tag:
        flavour = f"cudnn-{flavour}"
        if cudnn is None:
            cudnn = next((r.cudnn for r in same if r.cudnn), None)
    return _with_os(
        replace(
            facts,
            kind="cuda",
            base_cuda=base_cuda,
            cudnn=cudnn,
            flavour=flavour,
            os=_tag_os(tag),
            require=_common(same) or f"cuda>={base_cuda}",
            compat_package=any(r.compat_package for r in same),
            notes=(f"nvidia/cuda:{tag} is not among the tags known on {knowledge.date}",),
            source=same[0].source if same else "https://hub.docker.com/r/nvidia/cuda/tags",
        ),
        knowledge,
    )


def _date(value: str | None) -> str | None:
    return value if value and re.match(r"^\d{4}-", value) else None


def _common(rows: list[BaseTag]) -> str | None:
    requires = {r.require for r in rows if r.require}
    return max(requires, key=len) if requires else None


def _listed(facts: ImageFacts, short: str, tag: str, knowledge: Knowledge) -> ImageFacts | None:
    rows = [r for r in knowledge.images if r.repository in {short, f"nvcr.io/{short}"}]
    row = next((r for r in rows if r.tag == tag), None)
    if row is None:
        if not short.startswith(("nvcr.io/nvidia/", "nvidia/")) or not re.match(r"^\d\d\.\d\d-", tag):
            return None
        month = re.match(r"^(\d\d\.\d\d)-", tag)
        assert month is not None
        near = [r for r in rows if r.tag.startswith(month[1])]
        siblings = [r for r in knowledge.images if r.repository.startswith("nvcr.io/") and r.tag.startswith(month[1])]
        if near:
            row = near[0]
        elif siblings:
            row = replace(siblings[0], frameworks={}, notes=siblings[0].notes[1:])
        else:
            last = max((r.tag for r in rows), default="none")
            return replace(
                facts, kind="ngc", problem=f"{facts.reference}: release {month[1]} is not in the data (newest: {last})"
            )
    return _from_row(facts, row, knowledge)


def _from_row(facts: ImageFacts, row: KnownImage, knowledge: Knowledge) -> ImageFacts:
    return _with_os(
        replace(
            facts,
            kind="ngc" if row.repository.startswith("nvcr.io") else "framework",
            base_cuda=row.base_cuda,
            frameworks=tuple((canonicalize_name(k), v) for k, v in row.frameworks.items()),
            python=row.python,
            os=row.os,
            python_installed=row.python is not None,
            min_driver=row.min_driver,
            sm=row.sm,
            cc_min=row.cc_min,
            cudnn=row.cudnn,
            end_of_life=_date(row.end_of_life),
            notes=row.notes,
            source=row.source,
            cpu_only=row.base_cuda is None,
            compat_package=row.repository.startswith("nvcr.io"),
            flavour="devel" if "devel" in row.tag else "runtime",
        ),
        knowledge,
    )


def _distribution(facts: ImageFacts, short: str, tag: str, knowledge: Knowledge) -> ImageFacts | None:
    for pattern, family in _DISTRIBUTIONS:
        found = re.search(pattern, short)
        if not found:
            continue
        number = re.match(r"^(?:stream)?(\d+(?:\.\d+)?)", tag)
        name = _tag_os(tag)
        if "ubi" in pattern:
            name = f"rockylinux{found[1]}"
        elif name is None and number:
            whole = number[1] if family == "ubuntu" else number[1].split(".")[0]
            name = f"{family}{whole}"
        if name is None and tag == "latest":
            name = {"ubuntu": "ubuntu26.04", "debian": "debian13", "centos": "centos8"}.get(family)
        return _with_os(
            replace(
                facts, kind="distribution", os=name, flavour="distribution", source="https://hub.docker.com/_/" + family
            ),
            knowledge,
        )
    python = re.search(r"(?:^|/)python$", short)
    if python:
        version = re.match(r"^(3\.\d+)", tag)
        name = _tag_os(tag) or _PYTHON_IMAGE_OS.get(version[1] if version else "", "debian13")
        if "alpine" in tag:
            return replace(
                facts,
                kind="distribution",
                python=version[1] if version else None,
                python_installed=True,
                glibc="0",
                notes=("Alpine has musl instead of glibc: manylinux wheels do not install",),
                flavour="distribution",
            )
        return _with_os(
            replace(
                facts,
                kind="distribution",
                os=name,
                python=version[1] if version else None,
                flavour="distribution",
                python_installed=version is not None,
                source="https://hub.docker.com/_/python",
            ),
            knowledge,
        )
    if re.search(r"(?:^|/)alpine$", short):
        return replace(
            facts,
            kind="distribution",
            glibc="0",
            flavour="distribution",
            notes=("Alpine has musl instead of glibc: manylinux wheels do not install",),
        )
    return None


def _words(facts: ImageFacts, short: str, tag: str, knowledge: Knowledge) -> ImageFacts:
    text = f"{short}:{tag}".lower()
    frameworks = _tag_frameworks(short, tag)
    cuda = _tag_cuda(text)
    python = _tag_python(text)
    cpu = cuda is None and bool(re.search(r"(?<![a-z])cpu(?![a-z])", text))
    if short == "tensorflow/tensorflow" and "gpu" not in tag:
        cpu = True
    release = _tag_os(text)
    if not frameworks and cuda is None and release is None and python is None:
        return replace(facts, problem=f"the reference {facts.reference!r} says nothing about CUDA or frameworks")
    return _with_os(
        replace(
            facts,
            kind="third-party" if facts.kind == "unknown" else facts.kind,
            base_cuda=cuda,
            cudnn=_tag_cudnn(text),
            flavour="devel" if "devel" in text else None,
            os=release,
            python=python,
            python_installed=python is not None,
            frameworks=tuple(frameworks.items()),
            cpu_only=cpu,
            source=f"tag of {facts.reference}",
        ),
        knowledge,
    )


@lru_cache(maxsize=4096)
def newest_cuda_tag(
    knowledge: Knowledge, cuda: str, *, flavour: str, os: str | None = None, cudnn_major: str | None = None
) -> str | None:
    """'nvidia/cuda:12.4.1-base-ubuntu22.04': the newest pullable tag of a CUDA minor in a flavour; None when there
    is none."""
    minor = ".".join(cuda.split(".")[:2])
    rows = [
        r
        for r in knowledge.base_tags
        if r.flavour == flavour
        and not r.deleted
        and (r.base_cuda == minor or r.base_cuda.startswith(minor + "."))
        and (cudnn_major is None or r.cudnn is None or r.cudnn.split(".")[0] == cudnn_major)
    ]
    if os is not None:
        rows = [r for r in rows if r.os == os]
    if not rows:
        return None

    def order(row: BaseTag) -> tuple[object, ...]:
        return (row.os.startswith("ubuntu"), version_key(row.tag.split("-")[0]), row.os == "ubuntu22.04", row.os)

    return f"{rows[0].repository}:{max(rows, key=order).tag}"


def facts_of_config(facts: ImageFacts, config: Mapping[str, object], knowledge: Knowledge) -> ImageFacts:
    """What an image's labels and environment say outranks its name. ``config``: {'Labels': {…}, 'Env': {…}}."""
    labels, env = config.get("Labels"), config.get("Env")
    label: Mapping[str, str] = labels if isinstance(labels, Mapping) else {}
    variable: Mapping[str, str] = env if isinstance(env, Mapping) else {}
    cuda = label.get("io.gpuimg.base-cuda") or variable.get("CUDA_VERSION")
    cudnn = variable.get("NV_CUDNN_VERSION") or variable.get("CUDNN_VERSION")
    python = label.get("io.gpuimg.python") or variable.get("PYTHON_VERSION")
    frameworks = dict(facts.frameworks)
    name, version = label.get("io.gpuimg.framework"), label.get("org.opencontainers.image.version")
    if name and version:
        frameworks[name] = version
    if variable.get("PYTORCH_VERSION"):
        frameworks.setdefault("torch", variable["PYTORCH_VERSION"].split("+")[0].split("a0")[0])
    sm = tuple(s for s in (label.get("io.gpuimg.sm") or "").replace(",", " ").split() if s)
    require = variable.get("NVIDIA_REQUIRE_CUDA") or facts.require
    made = replace(
        facts,
        kind="third-party" if facts.kind == "unknown" else facts.kind,
        base_cuda=".".join(cuda.split(".")[:2]) if cuda else facts.base_cuda,
        cudnn=cudnn.split("-")[0] if cudnn else facts.cudnn,
        python=".".join(python.split(".")[:2]) if python else facts.python,
        python_installed=bool(python) or facts.python_installed,
        frameworks=tuple(frameworks.items()),
        sm=sm or facts.sm,
        cpu_only=label.get("io.gpuimg.device") == "cpu" or facts.cpu_only,
        require=require,
        problem=None if cuda or frameworks else facts.problem,
        source=f"labels and environment of {facts.reference}",
    )
    return _with_os(made, knowledge)
