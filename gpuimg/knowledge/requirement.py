"""Requirements as people write them → ``Requirement``. Pure text in, nouns out.

Understood: PEP 508 (``torch==2.5.1+cu124``, ``jax[cuda12]>=0.4.30``), conda (``pytorch=2.1``,
``pytorch::pytorch=2.1.0=…``),
loose forms (``torch 2.5.1 cu121``, ``PyTorch 2.1 CUDA 11.8``, ``tf2.12``), wheel file names and their URLs.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from urllib.parse import unquote

from packaging.requirements import InvalidRequirement
from packaging.requirements import Requirement as Pep508
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from gpuimg.errors import BadInput
from gpuimg.nouns import Requirement

WORDS: Mapping[str, str] = {
    "pytorch": "torch", "py-torch": "torch", "libtorch": "torch", "pytorch-gpu": "torch",
    "pytorch-cuda": "pytorch-cuda",
    "tf": "tensorflow", "tensor-flow": "tensorflow", "tf-gpu": "tensorflow-gpu", "tensorflowgpu": "tensorflow-gpu",
    "paddle": "paddlepaddle-gpu", "paddle-gpu": "paddlepaddle-gpu", "飞桨": "paddlepaddle-gpu",
    "paddlepaddlegpu": "paddlepaddle-gpu",
    "ort": "onnxruntime-gpu", "ort-gpu": "onnxruntime-gpu", "onnx-runtime": "onnxruntime",
    "onnxruntimegpu": "onnxruntime-gpu",
    "onnx-runtime-gpu": "onnxruntime-gpu",
    "trt-llm": "tensorrt-llm", "tensorrtllm": "tensorrt-llm", "flashattention": "flash-attn",
    "flash-attention": "flash-attn",
    "flash-attention-2": "flash-attn", "flashattn": "flash-attn", "bnb": "bitsandbytes", "mindspore-cuda": "mindspore",
    "昇思": "mindspore", "vllm-openai": "vllm", "jax-cuda": "jax",
}  # fmt: skip
"""Everyday names → the package meant. Names that are packages themselves are never changed."""

_SPEC_START = re.compile(r"(===|==|~=|!=|<=|>=|<|>)")
_CUDA_LABEL = re.compile(r"^\(?(?:cuda|cu)[-_ ]?(\d{1,2})\.?(\d)?(?:\.\d+)?\)?$", re.I)
_VERSION = re.compile(r"^[vV]?\d+(?:\.\d+)*(?:\.?(?:rc|a|b|post|dev)\d+)*(?:\.post\d+)?(?:\+[\w.]+)?$")
_LOOSE_VERSION = re.compile(r"^[vV]?\d+(?:\.(?:\d+|x|\*))*(?:\.?(?:rc|a|b|post|dev)\d+)*(?:\+[\w.]+)?$")


def cuda_label(text: str) -> str | None:
    """``cu121``, ``cu12.1``, ``CUDA 12.1``, ``cuda-12.1``, ``(cu121)`` → 'cu121'; ``cpu`` → 'cpu'; else None."""
    cleaned = text.strip().strip("()").lower()
    if cleaned in {"cpu", "cpu-only", "cpuonly"}:
        return "cpu"
    if re.fullmatch(r"rocm\d+(\.\d+)*", cleaned):
        return cleaned
    packed = re.fullmatch(r"cu(\d{2,3})", cleaned)
    if packed:
        return f"cu{packed[1]}"
    found = _CUDA_LABEL.match(cleaned)
    if not found:
        return None
    major, minor = found[1], found[2]
    if minor is None:
        return None
    return f"cu{major}{minor}"


def label_cuda(label: str | None) -> str | None:
    """'cu124' → '12.4', 'cu92' → '9.2', 'post112' → '11.2', 'cu130' → '13.0'; anything else None."""
    found = re.fullmatch(r"(?:cu|post)(\d{1,2})(\d)(?:\..*)?", label or "")
    return f"{int(found[1])}.{found[2]}" if found else None


def _name(text: str, aliases: Mapping[str, str]) -> str:
    plain = canonicalize_name(text.strip())
    if plain in WORDS:
        return WORDS[plain]
    target = aliases.get(plain) or aliases.get(plain.replace("-", "_"))
    if target is None or plain == "cupy":
        return plain
    return canonicalize_name(target)


def _split_local(specifier: str) -> tuple[str, str | None]:
    """``==2.5.1+cu124`` → ('==2.5.1', 'cu124'). Several clauses: the label of the ``==`` one."""
    local: str | None = None
    clauses = []
    for clause in specifier.split(","):
        head, plus, tail = clause.strip().partition("+")
        if plus:
            local = cuda_label(tail) or tail.strip().lower().rstrip("*").rstrip(".")
        clauses.append(head.strip())
    return ",".join(c for c in clauses if c), local


def _clean_specifier(specifier: str) -> str:
    """Normal form: sorted clauses, no blanks, ``===`` as ``==``, versions in PEP 440 form."""
    specifier = specifier.replace("===", "==").replace(" ", "")
    try:
        parsed = SpecifierSet(specifier)
    except InvalidSpecifier as error:
        raise ValueError(str(error)) from error
    clauses = []
    for one in parsed:
        version = one.version
        if one.operator != "===" and not version.endswith(".*"):
            version = str(Version(version))
        clauses.append(f"{one.operator}{version}")
    return ",".join(sorted(clauses, key=lambda c: (c.lstrip("=<>!~"), c)))


def _extras(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({canonicalize_name(v) for v in values}))


def parse_requirement(
    text: str,
    *,
    aliases: Mapping[str, str] | None = None,
    file: str | None = None,
    line: int | None = None,
) -> Requirement:
    """One requirement in normal form. ``aliases`` are the knowledge base's other names.

    Raises BadInput when the text cannot be read as a requirement.
    """
    names = aliases or {}
    raw = text
    where = file or "requirement"
    cleaned = _unquoted(unicodedata.normalize("NFKC", text).strip())
    if not cleaned:
        raise BadInput.at(where, line, "empty requirement")
    made = _wheel(cleaned, names) or _pep508(cleaned, names) or _conda(cleaned, names) or _loose(cleaned, names)
    if made is None:
        raise BadInput.at(where, line, f"{raw!r} is not a requirement", allowed=("torch==2.5.1", "torch>=2.4,<2.7"))
    return replace(made, raw=raw, file=file, line=line, from_file=file is not None)


def _unquoted(text: str) -> str:
    while len(text) > 1 and (text[0], text[-1]) in {('"', '"'), ("'", "'"), ("`", "`"), ("“", "”"), ("‘", "’")}:
        text = text[1:-1].strip()
    return text


def _wheel(text: str, names: Mapping[str, str]) -> Requirement | None:
    """A wheel's file name or URL: everything it says is in the name."""
    before, at, after = text.partition(" @ ")
    target = after if at else text
    file_name = unquote(target.split("#")[0].split("?")[0].rsplit("/", 1)[-1])
    if not file_name.endswith(".whl"):
        return None
    try:
        name, version, _, _ = parse_wheel_filename(file_name)
    except InvalidWheelFilename:
        return None
    extras: tuple[str, ...] = ()
    if at and "[" in before:
        extras = _extras(before.partition("[")[2].rstrip("] ").split(","))
    return Requirement(
        name=_name(name, names), specifier=f"=={version.public}", local=version.local, extras=extras, url=target.strip()
    )


def _pep508(text: str, names: Mapping[str, str]) -> Requirement | None:
    fixed = re.sub(r"(==\s*[\w.]+)\s*[-_ ]\s*(cu\d{2,3}|cpu)\b", r"\1+\2", text)
    fixed = re.sub(r"(==\s*[\w.]+\+)(cu(?:da)?)[-_]?(\d{1,2})\.(\d)\b", r"\1cu\3\4", fixed, flags=re.I)
    fixed = re.sub(r"([=<>!~]=?\s*)[vV](?=\d)", r"\1", fixed)
    fixed = re.sub(r"(==\s*\d+(?:\.\d+)*)\.[xX]\b", r"\1.*", fixed)
    fixed = re.sub(r"([<>]=?\s*\d+(?:\.\d+)*)\.\*", r"\1", fixed)
    if not re.match(r"^[A-Za-z0-9]", fixed):
        return None
    try:
        found = Pep508(fixed)
    except InvalidRequirement:
        return None
    if not found.specifier and not found.extras and not found.url and _glued(fixed):
        return None
    try:
        specifier, local = _split_local(str(found.specifier))
        specifier = _clean_specifier(specifier)
    except (ValueError, InvalidVersion):
        return None
    return Requirement(
        name=_name(found.name, names),
        specifier=specifier,
        local=local,
        extras=_extras(found.extras),
        marker=str(found.marker) if found.marker else None,
        url=found.url,
    )


def _conda(text: str, names: Mapping[str, str]) -> Requirement | None:
    """``channel::name=version=build``: one ``=`` means the version and everything below it."""
    found = re.fullmatch(r"(?:[\w./-]+::)?([A-Za-z][\w.-]*)\s*=\s*([\w.*+-]+?)(?:\s*=\s*([\w.*+-]+))?", text)
    if not found or "==" in text:
        return None
    version, build = found[2], found[3] or ""
    cuda = re.search(r"cuda[_-]?(\d+\.\d|\d{2,3})", build)
    local = None
    if cuda:
        local = "cu" + cuda[1].replace(".", "")
    elif "cpu" in build:
        local = "cpu"
    return _pinned(found[1], version, local, names)


def _pinned(name: str, version: str, local: str | None, names: Mapping[str, str]) -> Requirement | None:
    version, own = _split_local(version.lstrip("vV"))
    version = re.sub(r"\.[xX*]$", "", version)
    if not _VERSION.match(version):
        return None
    try:
        parsed = Version(version)
    except InvalidVersion:
        return None
    exact = len(parsed.release) >= 3 or parsed.is_prerelease or parsed.is_postrelease
    specifier = f"=={parsed}" if exact else f"=={parsed}.*"
    return Requirement(name=_name(name, names), specifier=specifier, local=own or local)


def _glued(text: str) -> tuple[str, str] | None:
    """``torch2.1.2``, ``tf2.12``, ``torch-2.5.1`` → name and version, where no such package name exists."""
    found = re.fullmatch(
        r"([A-Za-z][A-Za-z_-]*?)[-_]?[vV]?(\d+\.\d+(?:\.\d+)*(?:\.?(?:rc|post)\d+)?(?:\+[\w.]+)?)", text
    )
    return (found[1], found[2]) if found else None


def _loose(text: str, names: Mapping[str, str]) -> Requirement | None:
    """``torch 2.5.1 cu121``, ``PyTorch 2.3.0 CUDA 12.1``, ``tf2.12``, ``torch 2.5.1 / cuda 12.4``, ``torch>=2.4
    cu124``."""
    text = re.sub(r"(?i)\b(cuda|cu)\s*[:=_]?\s*(\d{1,2}\.\d)(?:\.\d+)?", r" cu\2 ", text)
    text = re.sub(r"[/,|;+]|\bversion\b|\bwith\b|\bfor\b|版本|版", " ", text) if not _SPEC_START.search(text) else text
    words = text.replace("(", " ").replace(")", " ").split()
    local: str | None = None
    kept: list[str] = []
    for word in words:
        label = cuda_label(word)
        if label is not None and kept:
            local = label
        else:
            kept.append(word)
    if not kept:
        return None
    if len(kept) > 2 and not _SPEC_START.search(" ".join(kept[1:])) and _LOOSE_VERSION.match(kept[-1]):
        kept = ["-".join(kept[:-1]), kept[-1]]
    joined = " ".join(kept)
    if _SPEC_START.search(joined):
        inner = _pep508(joined, names)
        return replace(inner, local=inner.local or local) if inner else None
    if len(kept) == 2 and _LOOSE_VERSION.match(kept[1]):
        name, bracket, extra = kept[0].partition("[")
        made = _pinned(name, kept[1], local, names)
        return replace(made, extras=_extras(extra.rstrip("]").split(","))) if made and bracket else made
    if len(kept) == 1:
        glued = _glued(kept[0])
        if glued:
            return _pinned(glued[0], glued[1], local, names)
        if re.fullmatch(r"[A-Za-z][\w.\-\[\],]*|[\u4e00-\u9fff]+", kept[0]):
            name, _, extra = kept[0].partition("[")
            extras = _extras(extra.rstrip("]").split(",")) if extra else ()
            return Requirement(name=_name(name, names), local=local, extras=extras)
    return None


def join_arguments(arguments: Sequence[str]) -> tuple[str, ...]:
    """``torch 2.5.1 cu121`` given as three words on a command line → one requirement text."""
    joined: list[str] = []
    for argument in arguments:
        text = argument.strip()
        continues = bool(
            re.match(r"^[vV]?\d+(\.|$)", text)
            or cuda_label(text)
            or _SPEC_START.match(text)
            or re.fullmatch(r"(?i)cuda", text)
        )
        if joined and continues:
            joined[-1] += f" {text}"
        else:
            joined.append(argument)
    return tuple(joined)


def applies(requirement: Requirement, *, python: str | None, machine: str) -> bool:
    """Does the requirement's environment marker hold on Linux with this Python? Unknown Python: it does."""
    if not requirement.marker:
        return True
    from packaging.markers import InvalidMarker, Marker

    version = python or "3.11"
    environment = {
        "os_name": "posix",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": machine,
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "platform_release": "",
        "platform_version": "",
        "implementation_version": f"{version}.0",
        "python_version": version,
        "python_full_version": f"{version}.0",
        "extra": "",
    }
    try:
        return Marker(requirement.marker).evaluate(environment)
    except InvalidMarker:
        return True


def merge(requirements: Iterable[Requirement]) -> tuple[Requirement, ...]:
    """Several mentions of one package become one: specifiers joined, the first label and the union of extras kept."""
    merged: dict[str, Requirement] = {}
    for one in requirements:
        have = merged.get(one.name)
        if have is None:
            merged[one.name] = one
            continue
        clauses = sorted({c for c in (*have.specifier.split(","), *one.specifier.split(",")) if c})
        merged[one.name] = replace(
            have,
            specifier=",".join(clauses),
            local=have.local or one.local,
            url=have.url or one.url,
            extras=tuple(sorted({*have.extras, *one.extras})),
        )
    return tuple(merged.values())


def text_of(requirement: Requirement) -> str:
    """PEP 508 text: ``tensorflow[and-cuda]==2.16.1``; the label goes with an exact version."""
    extras = f"[{','.join(requirement.extras)}]" if requirement.extras else ""
    specifier = requirement.specifier
    if requirement.local and specifier.startswith("==") and "," not in specifier and not specifier.endswith(".*"):
        specifier += f"+{requirement.local}"
    return f"{requirement.name}{extras}{specifier}"
