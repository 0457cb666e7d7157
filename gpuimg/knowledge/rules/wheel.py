"""Does a wheel exist for this Python, this machine, this glibc, on an index that is asked?"""

from __future__ import annotations

from collections.abc import Sequence

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from gpuimg.knowledge.base import version_key
from gpuimg.knowledge.requirement import label_cuda
from gpuimg.knowledge.rules.numbers import at_least, parts
from gpuimg.knowledge.rules.outcome import Outcome, outcome
from gpuimg.knowledge.tables import Build

SYMBOLS: dict[str, tuple[tuple[str, str, bool, str], ...]] = {
    "flash-attn": (
        (">=2.8", "2.32", True, "https://github.com/Dao-AILab/flash-attention/issues (GLIBC_2.32 not found)"),
    ),
    "vllm": (
        (">=0.5.1,<0.5.3", "2.32", True, "https://github.com/vllm-project/vllm/issues/6562"),
        (">=0.20,<0.21", "2.34", True, "https://github.com/vllm-project/vllm/issues/41103"),
        ("<0.20", "2.31", False, "https://github.com/vllm-project/vllm/issues/15592"),
    ),
}
"""Package → (versions, glibc, certain, source) where a wheel needs more than its tag says: its tag is linux_x86_64 or a
manylinux1 that its libraries do not keep. Not certain: built on a system with that glibc, the true floor not measured."""
MANYLINUX = "https://peps.python.org/pep-0600/"


def pythons_text(pythons: Sequence[str]) -> str:
    """'3.9 to 3.13 (cp39 … cp313)'."""
    ordered = sorted(pythons, key=parts)
    tags = [f"cp{p.replace('.', '')}" for p in ordered]
    if len(ordered) == 1:
        return f"{ordered[0]} ({tags[0]})"
    return f"{ordered[0]} to {ordered[-1]} ({tags[0]} … {tags[-1]})"


def python_ok(build: Build, python: str) -> bool | None:
    """Is there a wheel for that Python? None: not known."""
    if build.pythons is not None:
        return python in build.pythons
    if build.requires_python:
        try:
            return SpecifierSet(build.requires_python).contains(f"{python}.0") and None
        except InvalidSpecifier:
            return None
    return None


def judge_python(build: Build, python: str | None, *, subject: str, source: str, soft: bool = False) -> Outcome | None:
    """``soft``: the Python is merely the distribution's own; another can be installed, so it must be asked for."""
    if python is None:
        return None
    ok = python_ok(build, python)
    if ok is None:
        return None
    if ok:
        assert build.pythons is not None
        return outcome(
            "python", "yes", f"{subject} has a wheel for Python {python} (cp{python.replace('.', '')})", source
        )
    have = (
        f"its wheels are for Python {pythons_text(build.pythons)}"
        if build.pythons
        else f"it needs {build.requires_python}"
    )
    text = f"{subject} has no wheel for Python {python} (cp{python.replace('.', '')}): {have}"
    fix = (
        f"use Python {max(build.pythons, key=parts)} or older, down to {min(build.pythons, key=parts)}"
        if build.pythons
        else None
    )
    if soft:
        text += f"; {python} is the distribution's own, and which one is used is not given"
        return outcome("python", "unknown", text, source, fix=fix, missing=("python",))
    return outcome("python", "no", text, source, fix=fix)


def judge_glibc(build: Build, glibc: str | None, *, subject: str, where: str, source: str) -> Outcome | None:
    """manylinux_X_Y needs glibc ≥ X.Y. ``where`` is what the glibc belongs to. '0' is musl."""
    if glibc is None:
        return None
    if glibc == "0":
        return outcome(
            "glibc", "no", f"{subject}: {where} has musl, not glibc; manylinux wheels do not install there", MANYLINUX
        )
    tagged, linked = build.glibc, _symbols(build)
    if linked is not None and (tagged is None or not at_least(tagged, linked[0])):
        return _judge_symbols(linked, glibc, subject=subject, where=where)
    if tagged is None:
        return None
    tag = f"manylinux_{tagged.replace('.', '_')}"
    if at_least(glibc, tagged):
        return outcome("glibc", "yes", f"{subject} needs glibc {tagged} ({tag}); {where} has {glibc}", source)
    return outcome(
        "glibc",
        "no",
        f"{subject} needs glibc {tagged} ({tag}); {where} has glibc {glibc}",
        source,
        fix=f"use a base with glibc ≥ {tagged}, or an older version of the package",
    )


def _judge_symbols(linked: tuple[str, bool, str], glibc: str, *, subject: str, where: str) -> Outcome:
    want, certain, source = linked
    fix = f"use a base with glibc ≥ {want}"
    if at_least(glibc, want):
        return outcome("glibc", "yes", f"{subject} needs glibc {want} or less; {where} has {glibc}", source)
    if certain:
        text = (
            f"{subject} needs glibc {want} (GLIBC_{want} not found), whatever its tag says; {where} has glibc {glibc}"
        )
        return outcome("glibc", "no", text, source, fix=fix)
    text = f"{subject} was built with glibc {want} and its tag promises more than it keeps; {where} has glibc {glibc}"
    return outcome("glibc", "unknown", text, source, fix=fix, missing=("glibc the wheel really needs",))


def _symbols(build: Build) -> tuple[str, bool, str] | None:
    """glibc that a wheel was linked against where its tag does not say, with how sure that is and the source."""
    for versions, glibc, certain, source in SYMBOLS.get(build.framework, ()):
        if SpecifierSet(versions).contains(version_key(build.version), prereleases=True):
            released = build.index == "github" or build.framework != "flash-attn"
            return (glibc, certain, source) if released else None
    return None


def index_holds(build: Build, index_urls: Sequence[str]) -> bool:
    """Does one of the indexes named in a file hold that labelled build? Judged by the label in its address."""
    if build.index == "pypi" and build.local is None:
        return True
    label = (build.local or "").lower()
    cuda = build.wheel_cuda or label_cuda(build.local)
    short = "cu" + cuda.replace(".", "") if cuda else label
    for url in index_urls:
        low = url.lower().rstrip("/")
        if build.index_url and low.startswith(build.index_url.lower().rstrip("/")):
            return True
        if (label and label in low) or (short and short in low):
            return True
        if low.endswith(("torch_stable.html", "stable.html", "/whl", "pytorch-wheels", "torch_lts.html", "/whl/torch")):
            return True
        if low.endswith(".html") and build.index in low:
            return True
    return False


def judge_index(build: Build, index_urls: Sequence[str], *, subject: str, file: str | None) -> Outcome:
    """A labelled build in a file needs an index that holds it: PyPI takes no local labels."""
    if index_holds(build, index_urls):
        return outcome(
            "index", "yes", f"{subject} is on an index the file names", build.index_url or "https://pypi.org/simple"
        )
    named = f"; the file names {', '.join(index_urls)}" if index_urls else ""
    return outcome(
        "index",
        "no",
        f"{subject} is not on PyPI, which takes no local labels{named}: pip finds nothing",
        build.index_url or "https://packaging.python.org/specifications/version-specifiers/#local-version-identifiers",
        fix=f"add --extra-index-url {build.index_url} to {file or 'the file'}" if build.index_url else None,
    )
