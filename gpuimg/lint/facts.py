"""What the rules are given: options, the facts of a base image, and a set of packages that end up in one environment."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from gpuimg.knowledge import Knowledge
from gpuimg.knowledge.tables import Build, OsRelease
from gpuimg.lint.base import Base
from gpuimg.nouns import LintFinding, LintSeverity, Requirement
from gpuimg.project.entries import Index, exact_version

FRAMEWORKS_WITH_CUDA = {
    "torch", "tensorflow", "tensorflow-gpu", "jax", "jaxlib", "vllm", "tensorrt-llm", "sglang", "paddlepaddle-gpu", "mindspore",
    "onnxruntime-gpu", "ctranslate2", "faster-whisper", "cupy", "cupy-cuda11x", "cupy-cuda12x", "cupy-cuda13x", "tensorrt", "dgl",
    "xformers", "flash-attn", "deepspeed", "bitsandbytes", "triton",
}  # fmt: skip


@dataclass(frozen=True)
class Options:
    """What the command line adds to the files."""

    python: str | None = None
    gpus: tuple[str, ...] = ()
    driver: str | None = None
    base: str | None = None
    os: str | None = None
    glibc: str | None = None
    machine: str = "x86_64"


@dataclass(frozen=True)
class Item:
    """A requirement in a set, with the indexes pip sees for it."""

    req: Requirement
    indexes: tuple[Index, ...] = ()
    conditional: bool = False
    no_build_isolation: bool = False
    group: int = 0
    """Requirements of one pip command or file share a number: pip solves them together."""
    manager: str = "pip"


@dataclass(frozen=True)
class PackageSet:
    """Packages that end up in one environment, and what is known of it."""

    items: tuple[Item, ...]
    python: str | None = None
    python_from: str = ""
    """How the Python is known, for messages."""
    python_range: str | None = None
    """The project's own range (requires-python) where no single Python is known."""
    os: OsRelease | None = None
    glibc: str | None = None
    machine: str = "x86_64"
    base: Base | None = None
    kind: str = "requirements"
    """'requirements', 'dockerfile', 'conda', 'pyproject', 'lock' …"""
    base_torch: Item | None = None
    """torch that is already in the base image; only asked where an extension must match it."""
    trusted_hosts: frozenset[str] = frozenset()
    names_elsewhere: frozenset[str] = field(default_factory=frozenset)
    """Packages that come some other way (conda, the base image), so that a rule does not miss them."""

    def get(self, *names: str) -> Item | None:
        """First item of one of these names."""
        return next((i for i in self.items if i.req.name in names), None)

    @property
    def torch(self) -> Item | None:
        """The torch that extensions meet: installed here, else the base image's."""
        return self.get("torch") or self.base_torch

    def has(self, *names: str) -> bool:
        return self.get(*names) is not None or any(n in self.names_elsewhere for n in names)

    def all(self, *names: str) -> tuple[Item, ...]:
        return tuple(i for i in self.items if i.req.name in names)


def finding(
    rule: str, severity: LintSeverity, where: Requirement | tuple[str, int | None], message: str, fix: str, source: str
) -> LintFinding:
    """A LintFinding at a requirement's place or at (file, line)."""
    file, line = where if isinstance(where, tuple) else (where.file or "requirement", where.line)
    return LintFinding(rule, severity, file, line, message, fix, source)


def specifier_of(text: str) -> SpecifierSet | None:
    """A specifier set that lets prereleases in only when named; None when it is no PEP 440."""
    try:
        return SpecifierSet(text)
    except InvalidSpecifier:
        return None


def version_of(text: str | None) -> Version | None:
    try:
        return Version(text) if text else None
    except InvalidVersion:
        return None


def allows(specifier: str, version: str) -> bool:
    """Does a specifier allow a version? True when either cannot be read: nothing is said then."""
    parsed, wanted = specifier_of(specifier), version_of(version)
    if parsed is None or wanted is None:
        return True
    return parsed.contains(wanted, prereleases=True)


def cuda_of_label(label: str | None) -> str | None:
    """'cu124' → '12.4', 'cu92' → '9.2', 'cu130' → '13.0', 'cu12' → '12'; None for others."""
    found = re.match(r"^cu(\d+)", label or "")
    if not found:
        return None
    digits = found[1]
    if len(digits) == 2 and digits[0] == "1":
        return digits
    if len(digits) == 2:
        return f"{digits[0]}.{digits[1]}"
    return f"{digits[:-1]}.{digits[-1]}" if len(digits) == 3 else None


def major(version: str | None) -> int | None:
    """'12.4' → 12."""
    found = re.match(r"^\d+", version or "")
    return int(found[0]) if found else None


_LABEL_IN_URL = re.compile(r"/(cu\d{2,3}|cpu|rocm[\d.]+|xpu)(?:/|$|[_-])")


def labels_of_index(index: Index) -> tuple[str, ...]:
    """Build labels an index of PyTorch (or a mirror of it) holds: ``…/whl/cu121`` → ('cu121',)."""
    if not re.search(r"/whl|/wheels|pytorch", index.url):
        return ()
    return tuple(dict.fromkeys(_LABEL_IN_URL.findall(index.url)))


def holds_label(index: Index, label: str) -> bool | None:
    """Does an index hold wheels with this label? None: not known (private indexes, mirrors of unknown content)."""
    url = index.url.lower().rstrip("/")
    if re.search(r"(pypi\.org|pypi\.python\.org|files\.pythonhosted\.org)", url):
        return False
    if re.search(r"/simple$|/pypi(/simple)?$|/pypi/web/simple$", url) and re.search(
        r"tuna|aliyun|ustc|douban|huaweicloud|tencent|bfsu|sjtu|nju|zju|163\.com|hustunique|sustech|cernet", url
    ):
        return False
    if "pypi.nvidia.com" in url or "pypi.ngc.nvidia.com" in url:
        return False
    if "torch_stable.html" in url:
        return label in {
            "cpu",
            "cu92",
            "cu100",
            "cu101",
            "cu102",
            "cu110",
            "cu111",
            "cu113",
            "cu115",
            "cu116",
            "cu117",
            "cu118",
        }
    if "torch_lts.html" in url:
        return label in {"cpu", "cu102", "cu111"}
    if re.search(r"download(-r2)?\.pytorch\.org/whl/(nightly|test)", url) or re.search(
        r"pytorch[-_]?wheels|/pytorch/whl|pytorch\.org/whl", url
    ):
        named = labels_of_index(index)
        if named:
            return label in named
        return True if re.search(r"/whl(/lts)?/?$|pytorch-wheels/?$", url) else None
    return None


def index_urls(indexes: Iterable[Index]) -> str:
    return ", ".join(i.url for i in indexes) or "PyPI"


def label_from_indexes(item: Item) -> str | None:
    """The label pip ends up with for an unlabelled pin: a build with a label beats the same version without one."""
    for index in item.indexes:
        if index.kind == "source" and index.packages and item.req.name not in index.packages:
            continue
        labels = labels_of_index(index)
        if len(labels) == 1 and "pytorch" in index.url:
            return labels[0]
    return None


def build_of(kb: Knowledge, item: Item, machine: str = "x86_64") -> Build | None:
    """The published build an exact pin selects with the indexes it sees; None when the table does not say."""
    version = exact_version(item.req)
    if version is None:
        return None
    rows = kb.builds(item.req.name, version, machine=machine)
    if not rows:
        return None
    if item.req.local is not None:
        return next((b for b in rows if b.local == item.req.local), None)
    label = label_from_indexes(item) if item.req.name in TORCH_FAMILY else None
    if label is not None:
        found = next((b for b in rows if b.local == label), None)
        if found is not None or not searches_pypi(item):
            return found  # an index that lacks the version leaves it to PyPI, where PyPI is searched too
    if item.req.extras:
        found = next((b for b in rows if b.extra in item.req.extras), None)
        if found is not None:
            return found
    return next((b for b in rows if b.default), None)


def searches_pypi(item: Item) -> bool:
    """Is PyPI (or a mirror of it) searched besides the named indexes?"""
    main = [i for i in item.indexes if i.kind == "index-url"]
    return not main or "pytorch.org" not in main[-1].url or any("pypi" in i.url for i in item.indexes)


TORCH_FAMILY = {"torch", "torchvision", "torchaudio", "xformers", "torchtext"}


def cuda_of(kb: Knowledge, item: Item, machine: str = "x86_64") -> str | None:
    """wheel_cuda a requirement ends up with, by its label, its index or the table; 'cpu' for a CPU build."""
    label = item.req.local or (label_from_indexes(item) if item.req.name in TORCH_FAMILY else None)
    version = exact_version(item.req)
    if item.req.local is None and label is not None and version is not None:
        rows = kb.builds(item.req.name, version, machine=machine)
        if (
            len({b.local for b in rows if b.local}) > 1
            and not any(b.local == label for b in rows)
            and searches_pypi(item)
        ):
            label = None
    if label == "cpu":
        return "cpu"
    named = cuda_of_label(label)
    if named is not None:
        return named
    build = build_of(kb, item, machine)
    if build is None:
        return None
    return "cpu" if build.device == "cpu" else build.wheel_cuda


def matching_versions(kb: Knowledge, requirement: Requirement) -> tuple[str, ...]:
    """Versions in the table that a requirement allows, oldest first; prereleases only when asked for."""
    parsed = specifier_of(requirement.specifier)
    if parsed is None:
        return ()
    found = []
    for text in kb.versions(requirement.name):
        version = version_of(text)
        if version is None or (version.is_prerelease and not parsed.prereleases):
            continue
        if parsed.contains(version, prereleases=True):
            found.append(text)
    return tuple(found)


def newest(kb: Knowledge, requirement: Requirement) -> str | None:
    """The newest version in the table that a requirement allows."""
    found = matching_versions(kb, requirement)
    return found[-1] if found else None


def unique(findings: Iterable[LintFinding]) -> Iterator[LintFinding]:
    """Each finding once: same rule, place and message."""
    seen: set[tuple[str, str, int | None, str]] = set()
    for one in findings:
        key = (one.rule, one.file, one.line, one.message)
        if key not in seen:
            seen.add(key)
            yield one


def pythons_text(pythons: Iterable[str]) -> str:
    """('3.8', '3.9', '3.10') → '3.8 to 3.10'."""
    ordered = sorted(set(pythons), key=lambda p: [int(x) for x in p.split(".")])
    if not ordered:
        return "no Python"
    return ordered[0] if len(ordered) == 1 else f"{ordered[0]} to {ordered[-1]}"
