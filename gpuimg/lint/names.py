"""Requirements under names that give something else than what is meant, or nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpuimg.knowledge import Knowledge
from gpuimg.lint.facts import PackageSet, allows, finding, specifier_of
from gpuimg.nouns import LintFinding
from gpuimg.project.entries import exact_version

PYPI = "https://pypi.org/project/"

NOT_ON_PIP: dict[str, tuple[str, str]] = {
    "cudatoolkit": ("a conda package: pip has none of that name", "remove it (the wheels bring CUDA), or use conda"),
    "cuda-toolkit-nvcc": ("not a pip package", "nvidia-cuda-nvcc-cu12, or a devel base image"),
    "pytorch-cuda": ("a conda package: pip has none of that name", "choose the CUDA by the index: --index-url https://download.pytorch.org/whl/cu124"),
    "cpuonly": ("a conda package: pip has none of that name", "choose the CPU build by the index: https://download.pytorch.org/whl/cpu"),
    "cudnn": ("a conda package: pip has no such library under that name", "nvidia-cudnn-cu12, or a base image with cuDNN"),
    "libcudnn8": ("an apt package, not a pip one", "apt-get install libcudnn8, or nvidia-cudnn-cu12 from pip"),
    "nvidia-driver": ("the driver belongs to the host, pip has none", "remove it"),
    "nvidia-smi": ("nvidia-smi comes with the host's driver, pip has none", "remove it; the container runtime brings it in"),
    "python": ("pip does not install Python", "requires-python, or the base image's tag"),
    "tensorflow-gpu-cuda": ("no such package", "tensorflow[and-cuda]"),
    "torch-gpu": ("no such package: the GPU build is torch itself", "torch"),
    "torchgpu": ("no such package: the GPU build is torch itself", "torch"),
    "pytorch-mutex": ("a conda package: pip has none of that name", "remove it"),
    "_libgcc_mutex": ("a conda package: this file is a conda export", "list only pip packages, or use conda"),
    "libgcc-ng": ("a conda package: this file is a conda export", "list only pip packages, or use conda"),
    "ca-certificates": ("a conda package: this file is a conda export", "list only pip packages, or use conda"),
    "vs2015-runtime": ("a Windows part of a conda export", "list only pip packages"),
}  # fmt: skip
"""Names pip cannot install (checked against the index) → why, and what is meant."""

OTHER_PACKAGE: dict[str, tuple[str, str]] = {
    "opencv": ("the name of the system and conda package", "opencv-python-headless"),
    "cv2": ("the import name, not the package", "opencv-python-headless"),
    "pil": ("the import name, not the package", "pillow"),
    "skimage": ("the import name, not the package", "scikit-image"),
    "yaml": ("the import name, not the package", "pyyaml"),
    "bs4": ("the import name; the package of that name only points at it", "beautifulsoup4"),
    "cuda": ("not NVIDIA's CUDA", "cuda-python, or nothing: the wheels bring CUDA"),
    "tensorrt-llm-gpu": ("not NVIDIA's package", "tensorrt-llm"),
    "flash-attention": ("another package than flash-attn", "flash-attn"),
    "pytorch-gpu": ("the name of the conda package", "torch"),
    "dateutil": ("the import name, not the package", "python-dateutil"),
    "sentence-transformer": ("not the package meant", "sentence-transformers"),
}  # fmt: skip
"""Names that exist (or fail) on PyPI but are not what is meant."""

NOT_ON_LINUX: dict[str, str] = {
    "pywin32": "Windows", "pypiwin32": "Windows", "windows-curses": "Windows", "tensorflow-intel": "Windows", "triton-windows": "Windows",
    "tensorflow-macos": "macOS", "tensorflow-metal": "macOS", "jax-metal": "macOS",
}  # fmt: skip
"""Packages with wheels for one other system alone, and no source to build: pip on Linux finds no matching distribution."""

NVIDIA_PLACEHOLDER = re.compile(r"^nvidia-(pyindex|tensorrt|tensorflow|cudnn|cublas)$")


def names(packages: PackageSet, kb: Knowledge) -> Iterator[LintFinding]:
    """Wrong, withdrawn and placeholder names."""
    for item in packages.items:
        one = item.req
        if one.url:
            continue
        missing = NOT_ON_PIP.get(one.name)
        if missing:
            yield finding(
                "wrong-name",
                "error",
                one,
                f"{one.name} is {missing[0]}; pip stops here",
                f"use instead: {missing[1]}",
                PYPI,
            )
            continue
        system = NOT_ON_LINUX.get(one.name)
        if system is not None and item.manager == "pip":
            if not item.conditional and not one.marker:
                yield finding(
                    "other-system", "error", one, f"{one.name} has wheels for {system} alone: pip on Linux finds no matching distribution",
                    f"remove it, or write {one.name}{one.specifier} ; sys_platform == '{'win32' if system == 'Windows' else 'darwin'}'",
                    f"{PYPI}{one.name}/#files",
                )  # fmt: skip
            continue
        other = OTHER_PACKAGE.get(one.name)
        if other:
            yield finding(
                "wrong-name", "warning" if one.name in {"bs4", "cuda", "flash-attention"} else "error", one,
                f"{one.name} is not the pip package that is meant: {other[0]}", f"use {other[1]} instead", f"{PYPI}{one.name}/",
            )  # fmt: skip
            continue
        yield from _removed(packages, item.req.name, kb)


def faiss(packages: PackageSet, kb: Knowledge) -> Iterator[LintFinding]:
    """PyPI's faiss-gpu ends with 1.7.2, for Python 3.6 to 3.10 and CUDA 11; later ones are conda's."""
    item = packages.get("faiss-gpu")
    if (
        item is None
        or item.req.marker
        or item.req.url
        or (packages.kind == "conda" and item.req.name in packages.names_elsewhere)
    ):
        return
    version = exact_version(item.req)
    late = version is not None and not allows("<=1.7.2", version)
    new_python = packages.python is not None and int(packages.python.split(".")[1]) > 10
    if item.indexes and late:
        return
    if late or new_python:
        why = (
            f"ends with 1.7.2, and {version} is asked for"
            if late
            else f"has wheels for Python 3.6 to 3.10, and this is {packages.python}"
        )
        yield finding(
            "removed-package", "error", item.req, f"PyPI's faiss-gpu {why}: no matching distribution",
            "faiss-gpu-cu12, faiss-cpu, or faiss-gpu from conda", f"{PYPI}faiss-gpu/#files",
        )  # fmt: skip


def _removed(packages: PackageSet, name: str, kb: Knowledge) -> Iterator[LintFinding]:
    """Rows of the table of withdrawn names and releases."""
    item = packages.get(name)
    if item is None:
        return
    one = item.req
    for row in kb.removed:
        if row.package != name:
            continue
        if not row.versions:
            extra = (
                " 'pytorch' is the name of the conda package" if name == "pytorch" and "conda" not in row.why else ""
            )
            yield finding(
                "wrong-name",
                "error",
                one,
                f"{name} is not the pip package that is meant: {row.why}{extra}",
                f"use {row.instead} instead",
                row.source,
            )
            continue
        version = exact_version(one)
        if "CUDA wheels" in row.why and (not any(e.startswith("cuda") for e in one.extras) or item.indexes):
            continue  # the plain package installs, for the CPU
        if "extra" in row.why:
            named = re.search(r"(cuda\d+|cuda|and-cuda) extra", row.why)
            if (
                not one.extras
                or (named and named[1] not in one.extras)
                or version is None
                or not allows(row.versions, version)
            ):
                continue
        elif version is not None:
            if not allows(row.versions, version):
                continue
        elif specifier_of(one.specifier) is None or not _only_within(one.specifier, row.versions, kb, name):
            continue
        if one.local or (any("pypi.org" not in i.url for i in item.indexes) and "not on PyPI" in row.why):
            continue
        if re.search(r"not on PyPI|PyPI has no", row.why) and item.indexes:
            continue
        yield finding("removed-package", "error", one, f"{name}{one.specifier}: {row.why}", row.instead, row.source)


def _only_within(specifier: str, versions: str, kb: Knowledge, name: str) -> bool:
    """Does every version the table knows and the requirement allows fall under the row? An open requirement: no row."""
    if name == "tensorflow-gpu" and not specifier:
        return True
    known = [v for v in kb.versions(name) if specifier and allows(specifier, v)]
    return bool(known) and all(allows(versions, v) for v in known)
