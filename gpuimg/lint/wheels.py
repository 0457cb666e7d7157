"""Is there a wheel? Python, glibc and machine against what is published, and what a wheel's own file name says."""

from __future__ import annotations

import re
from collections.abc import Iterator

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.tags import Tag
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from gpuimg.knowledge import Knowledge
from gpuimg.knowledge.rules.numbers import at_least
from gpuimg.knowledge.tables import Build
from gpuimg.lint.facts import (
    Item,
    PackageSet,
    build_of,
    cuda_of,
    finding,
    major,
    matching_versions,
    pythons_text,
    version_of,
)
from gpuimg.nouns import LintFinding
from gpuimg.project.entries import exact_version, wheel_name

NO_SDIST = {
    "torch", "torchvision", "torchaudio", "torchtext", "tensorflow", "tensorflow-gpu", "tensorflow-cpu", "jaxlib", "triton",
    "onnxruntime", "onnxruntime-gpu", "paddlepaddle", "paddlepaddle-gpu", "mindspore", "ctranslate2", "tensorrt-llm",
}  # fmt: skip
"""Published as wheels only: without a matching one pip finds nothing. Others fall back to compiling."""
MANYLINUX = "https://peps.python.org/pep-0600/"


def pythons_of(kb: Knowledge, item: Item, machine: str) -> tuple[str, ...] | None:
    """Pythons for which an exact pin has a wheel; None when the table does not say."""
    build = build_of(kb, item, machine)
    if build is None and item.req.local and (version := exact_version(item.req)):
        build = next(iter(kb.builds(item.req.name, version, machine=machine)), None)
    return build.pythons if build is not None else None


def python_versions(packages: PackageSet, kb: Knowledge) -> Iterator[LintFinding]:
    """A wheel for this Python? Without a known Python: is there one on which all the pins meet?"""
    found: list[tuple[Item, tuple[str, ...]]] = []
    for item in packages.items:
        if item.req.marker or item.conditional:
            continue
        pythons = pythons_of(kb, item, packages.machine)
        if pythons:
            found.append((item, pythons))
        elif packages.python and not item.req.url and exact_version(item.req) is None:
            yield from _range_on_python(item, packages, kb)
    if packages.python:
        for item, pythons in found:
            if packages.python not in pythons:
                yield from _no_wheel(item, pythons, packages, kb)
        return
    if packages.python_range:
        for item, pythons in found:
            if not any(_allowed(p, packages.python_range) for p in pythons):
                yield finding(
                    "python-version", "error" if item.req.name in NO_SDIST else "warning", item.req,
                    f"{item.req.name} {exact_version(item.req)} has wheels for Python {pythons_text(pythons)} only, and the project asks "
                    f"for Python {packages.python_range}", f"use Python {pythons_text(pythons)}, or a newer {item.req.name}", MANYLINUX,
                )  # fmt: skip
        found = [(i, tuple(p for p in pythons if _allowed(p, packages.python_range))) for i, pythons in found]
        found = [(i, pythons) for i, pythons in found if pythons]
    yield from _common_python(found, packages)


def _allowed(python: str, specifier: str | None) -> bool:
    if not specifier:
        return True
    try:
        return any(SpecifierSet(specifier).contains(f"{python}.{patch}") for patch in ("0", "99"))
    except InvalidSpecifier:
        return True


def _no_wheel(item: Item, pythons: tuple[str, ...], packages: PackageSet, kb: Knowledge) -> Iterator[LintFinding]:
    one = item.req
    source = next(
        (b.source for b in kb.builds(one.name, exact_version(one) or "")), f"https://pypi.org/project/{one.name}/"
    )
    where = f" ({packages.python_from})" if packages.python_from else ""
    version = exact_version(one) or one.specifier
    newer = [
        v
        for v in kb.versions(one.name)
        if any(b.pythons and packages.python in b.pythons for b in kb.builds(one.name, v))
    ]
    fix = f"use Python {pythons_text(pythons)}"
    if newer:
        fix += f", or a version with wheels for {packages.python}: {newer[0]}" + (
            f" to {newer[-1]}" if len(newer) > 1 else ""
        )
    if one.name in NO_SDIST:
        yield finding(
            "python-version", "error", one,
            f"{one.name} {version} has wheels for Python {pythons_text(pythons)} only, and this is Python {packages.python}{where}: "
            "no matching distribution", fix, source,
        )  # fmt: skip
    else:
        yield finding(
            "python-version", "warning", one,
            f"{one.name} {version} has wheels for Python {pythons_text(pythons)} only; on Python {packages.python}{where} pip compiles "
            "it from source, which mostly fails", fix, source,
        )  # fmt: skip


def _range_on_python(item: Item, packages: PackageSet, kb: Knowledge) -> Iterator[LintFinding]:
    """A range none of whose versions has a wheel for this Python."""
    one = item.req
    if not one.specifier or one.name not in NO_SDIST:
        return
    versions = matching_versions(kb, one)
    builds: list[Build] = [b for v in versions for b in kb.builds(one.name, v, machine=packages.machine) if b.pythons]
    if builds and not any(packages.python in (b.pythons or ()) for b in builds):
        yield finding(
            "python-version", "error", one,
            f"no {one.name} that {one.specifier} allows has a wheel for Python {packages.python}",
            f"use Python {pythons_text(p for b in builds for p in b.pythons or ())}", builds[-1].source,
        )  # fmt: skip


def _common_python(found: list[tuple[Item, tuple[str, ...]]], packages: PackageSet) -> Iterator[LintFinding]:
    binding = [(i, set(p)) for i, p in found]
    if len(binding) < 2:
        return
    common = set.intersection(*(p for _, p in binding))
    listed = "; ".join(f"{i.req.name} {exact_version(i.req)}: {pythons_text(p)}" for i, p in binding)
    narrowest = min(binding, key=lambda pair: len(pair[1]))[0].req
    if not common:
        wheels_only = [p for i, p in binding if i.req.name in NO_SDIST]
        hard = len(wheels_only) > 1 and not set.intersection(*wheels_only)
        yield finding(
            "python-version", "error" if hard else "warning", narrowest,
            f"no single Python has wheels for all the pins ({listed})", "move the oldest pins to newer versions", MANYLINUX,
        )  # fmt: skip
    elif len(common) == 1:
        only = next(iter(common))
        yield finding(
            "python-version", "warning", narrowest,
            f"only Python {only} has wheels for all the pins ({listed})", f"use Python {only}, and say so in the image or README",
            MANYLINUX,
        )  # fmt: skip


def glibc(packages: PackageSet, kb: Knowledge) -> Iterator[LintFinding]:
    """manylinux tag of the wheel against the glibc of the base."""
    if packages.base is not None and packages.base.musl:
        for item in packages.items:
            if item.req.name in NO_SDIST:
                yield finding(
                    "musl", "error", item.req,
                    f"{item.req.name} has manylinux wheels only, and Alpine has musl instead of glibc: no matching distribution",
                    "use a Debian or Ubuntu base (python:3.11-slim)", MANYLINUX,
                )  # fmt: skip
        return
    if packages.glibc is None:
        return
    where = packages.os.id if packages.os else f"glibc {packages.glibc}"
    for item in packages.items:
        if item.conditional or item.req.url:
            continue
        build = build_of(kb, item, packages.machine)
        need = build.glibc if build is not None else None
        if build is None or need is None or at_least(packages.glibc, need):
            continue
        compiled = item.req.name == "flash-attn" or build.index == "none"
        yield finding(
            "glibc", "error" if item.req.name in NO_SDIST or compiled or item.req.name == "vllm" else "warning", item.req,
            f"{item.req.name} {build.version} needs glibc {need} (manylinux_{need.replace('.', '_')}), and {where} has {packages.glibc}",
            f"use a base with glibc {need} or newer, or an older {item.req.name}", build.source or MANYLINUX,
        )  # fmt: skip


_FLASH = re.compile(r"^cu(?P<cuda>\d+)torch(?P<torch>\d+\.\d+)cxx11abi(?P<abi>true|false)$", re.I)


def wheel_files(packages: PackageSet, kb: Knowledge) -> Iterator[LintFinding]:
    """A wheel given by file name or URL: its Python, platform, torch, CUDA and C++ ABI against the rest."""
    torch = packages.torch
    for item in packages.items:
        name = wheel_name(item.req.url or "")
        if name is None:
            continue
        try:
            _, _, _, tags = parse_wheel_filename(name)
        except InvalidWheelFilename:
            continue
        yield from _platform(item, tags, packages)
        yield from _python_tag(item, tags, packages)
        label = _FLASH.match(item.req.local or "") or re.search(
            r"(?:cu(?P<cuda>\d+))?[.+]?(?:torch|pt)(?P<torch>\d+\.?\d*)?(?:\.?cxx11abi(?P<abi>true|false))?",
            item.req.local or "",
            re.I,
        )
        if label is not None and torch is not None:
            yield from _extension(item, label, torch, packages, kb)


def _platform(item: Item, tags: frozenset[Tag], packages: PackageSet) -> Iterator[LintFinding]:
    platforms = {t.platform for t in tags}
    if "any" in platforms:
        return
    wanted = "aarch64" if packages.machine == "aarch64" else "x86_64"
    if not any(p.startswith(("linux", "manylinux", "musllinux")) for p in platforms):
        yield finding(
            "wheel-platform", "error", item.req, f"a wheel for {', '.join(sorted(platforms))} does not install on Linux",
            "take the linux_x86_64 wheel of the same release", MANYLINUX,
        )  # fmt: skip
    elif not any(p.endswith(wanted) for p in platforms):
        yield finding(
            "wheel-platform", "error", item.req, f"a wheel for {', '.join(sorted(platforms))} does not install on {wanted}",
            f"take the wheel for {wanted}", MANYLINUX,
        )  # fmt: skip


def _python_tag(item: Item, tags: frozenset[Tag], packages: PackageSet) -> Iterator[LintFinding]:
    if packages.python is None:
        return
    digits = packages.python.replace(".", "")
    for tag in tags:
        if tag.interpreter in {"py3", "py2.py3", f"cp{digits}", f"py{digits}"}:
            return
        older = re.fullmatch(r"cp3(\d+)", tag.interpreter)
        if tag.abi == "abi3" and older and int(older[1]) <= int(packages.python.split(".")[1]):
            return
    wheel_python = sorted({t.interpreter for t in tags})
    where = f" ({packages.python_from})" if packages.python_from else ""
    yield finding(
        "wheel-python", "error", item.req,
        f"the wheel is for {', '.join(wheel_python)}, and this is Python {packages.python}{where}",
        f"take the cp{digits} wheel of the same release", "https://peps.python.org/pep-0425/",
    )  # fmt: skip


def _extension(
    item: Item, label: re.Match[str], torch: Item, packages: PackageSet, kb: Knowledge
) -> Iterator[LintFinding]:
    source = "https://github.com/Dao-AILab/flash-attention/releases"
    version = version_of(exact_version(torch.req))
    wanted = label["torch"]
    if wanted and "." not in wanted and len(wanted) >= 2:
        wanted = f"{wanted[0]}.{wanted[1:]}".rstrip("0") if len(wanted) > 2 else f"{wanted[0]}.{wanted[1]}"
        if wanted.endswith("."):
            wanted += "0"
    parsed = version_of(wanted)
    if version is not None and parsed is not None and parsed.release[:2] != version.release[:2]:
        yield finding(
            "extension-abi", "error", item.req,
            f"the {item.req.name} wheel was compiled for torch {wanted}, and torch {version} is asked for: undefined symbol at import",
            f"take the wheel named torch{version.release[0]}.{version.release[1]}", source,
        )  # fmt: skip
    build = build_of(kb, torch, packages.machine)
    cuda = cuda_of(kb, torch, packages.machine)
    digits = label["cuda"]
    if digits and cuda:
        has = int(digits[:2])
        if cuda == "cpu" or major(cuda) != has:
            yield finding(
                "extension-abi", "error", item.req,
                f"the {item.req.name} wheel is built for CUDA {has}, and torch {version or ''} here is "
                + ("a CPU build" if cuda == "cpu" else f"built for CUDA {cuda} (wheel_cuda)") + ": libcudart is not the one it links",
                "take the wheel of torch's own CUDA", source,
            )  # fmt: skip
    abi = label["abi"]
    if abi and build is not None and build.cxx11_abi is not None and build.cxx11_abi != (abi.lower() == "true"):
        have = str(build.cxx11_abi).upper()
        yield finding(
            "extension-abi", "error", item.req,
            f"the wheel is named cxx11abi{abi.upper()}, and pip's torch {build.version} has the C++ ABI {have}: undefined symbol at import",
            f"take the wheel named cxx11abi{have}", source,
        )  # fmt: skip


def local_wheels(packages: PackageSet, kb: Knowledge) -> Iterator[LintFinding]:
    """Paths that exist on the machine where the file was made only."""
    for item in packages.items:
        url = item.req.url or ""
        if re.match(r"^(file:///|[A-Za-z]:\\|/)", url) and packages.kind != "dockerfile":
            conda = "/croot/" in url or "conda-bld" in url or "/work/ci" in url or "feedstock_root" in url
            yield finding(
                "local-path", "error", item.req,
                f"{item.req.name} points at {url[:80]}, a path of the machine the file was made on"
                + (": pip freeze inside conda writes these" if conda else ""),
                "pin the version instead (pip list --format=freeze)", "https://pip.pypa.io/en/stable/cli/pip_freeze/",
            )  # fmt: skip
