"""conda environments: which CUDA selector belongs to which pytorch, channels, what conda and pip do to each other."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from gpuimg.knowledge import Knowledge
from gpuimg.knowledge.rules.companions import pins
from gpuimg.lint.facts import finding, version_of
from gpuimg.nouns import LintFinding, Requirement
from gpuimg.project.entries import FileNeeds

PREVIOUS = "https://pytorch.org/get-started/previous-versions/"
END = "https://github.com/pytorch/pytorch/issues/138506"

PYTORCH_CUDA: dict[tuple[int, int], tuple[str, ...]] = {
    (1, 13): ("11.6", "11.7"), (2, 0): ("11.7", "11.8"), (2, 1): ("11.8", "12.1"), (2, 2): ("11.8", "12.1"),
    (2, 3): ("11.8", "12.1"), (2, 4): ("11.8", "12.1", "12.4"), (2, 5): ("11.8", "12.1", "12.4"),
}  # fmt: skip
"""pytorch-cuda packages of each pytorch in the pytorch channel (pytorch.org, previous versions)."""
CUDATOOLKIT: dict[tuple[int, int], tuple[str, ...]] = {
    (1, 4): ("9.2", "10.1"), (1, 5): ("9.2", "10.1", "10.2"), (1, 6): ("9.2", "10.1", "10.2"), (1, 7): ("9.2", "10.1", "10.2", "11.0"),
    (1, 8): ("10.1", "10.2", "11.1", "11.3"), (1, 9): ("10.2", "11.1", "11.3"), (1, 10): ("10.2", "11.1", "11.3"),
    (1, 11): ("10.2", "11.1", "11.3", "11.5"), (1, 12): ("10.2", "11.3", "11.6"),
}  # fmt: skip
"""cudatoolkit versions of each pytorch in the pytorch channel (pytorch.org, previous versions)."""
WINDOWS_ONLY = {
    "vs2015_runtime", "vc", "vc14_runtime", "ucrt", "pywin32", "pywinpty", "win_inet_pton", "wincertstore", "msys2-conda-epoch",
    "m2w64-gcc-libs", "m2w64-gmp", "m2w64-libwinpthread-git", "m2w64-gcc-libgfortran", "m2w64-gcc-libs-core", "console_shortcut",
    "menuinst", "colorama-win", "vcomp14", "winpty", "pyreadline", "pywin32-ctypes", "win_unicode_console",
}  # fmt: skip
MAC_ONLY = {"libcxx", "appnope", "pyobjc-core", "python.app", "libgfortran-osx"}


def conda_rules(needs: FileNeeds, kb: Knowledge) -> Iterator[LintFinding]:
    """All rules of a conda environment, its pip section apart."""
    named = {r.name: r for r in needs.conda}
    channels = [c for c, _ in needs.channels]
    yield from packages_of_channels(named, channels, (needs.file, needs.channels[0][1] if needs.channels else 1), kb)
    yield from _platform(needs)
    yield from _pip_section(needs, named)


def packages_of_channels(
    named: dict[str, Requirement], channels: Sequence[str], where: tuple[str, int | None], kb: Knowledge
) -> Iterator[LintFinding]:
    """pytorch, its CUDA selector and its companions, as conda solves them from the given channels."""
    torch = named.get("pytorch") or named.get("pytorch-gpu")
    toolkit, selector, cpu = named.get("cudatoolkit"), named.get("pytorch-cuda"), named.get("cpuonly")
    forge = any("conda-forge" in c for c in channels) or any("conda-forge::" in r.raw for r in named.values())
    official = any(re.search(r"(^|/)pytorch(-lts|-nightly)?/?$", c) for c in channels)
    nvidia = any(re.search(r"(^|/)nvidia(/|$)", c) for c in channels)
    version = _series(torch)
    forge_first = forge and (not official or _position(channels, "conda-forge") < _position(channels, "pytorch"))
    if toolkit is not None:
        number = version_of(_number(toolkit))
        if number is not None and number.release[0] >= 12:
            yield finding(
                "conda-cudatoolkit", "error", toolkit, f"cudatoolkit {_number(toolkit)} was never published: the package ends at 11.8", "pytorch-cuda (pytorch channel) or cuda-version (conda-forge) chooses a newer CUDA", PREVIOUS,
            )  # fmt: skip
            toolkit = None
    if torch is not None and version is not None:
        yield from _pytorch(torch, version, toolkit, selector, cpu, forge_first, official, nvidia, forge, where)
    if selector is not None and not nvidia and not forge:
        yield finding(
            "conda-channel", "error", selector, "pytorch-cuda takes CUDA from the nvidia channel, which is not listed: conda cannot solve it", "add the channel nvidia after pytorch", PREVIOUS,
        )  # fmt: skip
    if selector is not None and not official and not forge_first and torch is None:
        yield finding(
            "conda-channel",
            "warning",
            selector,
            "pytorch-cuda is in the pytorch channel, which is not listed",
            "add the channel pytorch",
            PREVIOUS,
        )
    if cpu is not None and (selector is not None or toolkit is not None):
        yield finding(
            "conda-cpu", "error", cpu, "cpuonly and a CUDA selector exclude each other", "remove one of them", PREVIOUS
        )
    if torch is not None:
        yield from _companions(torch, named, kb)
        if official and not forge_first:
            yield from _python(torch, named.get("python"), kb)
    if "pip" not in named and "torch" in named:
        pass
    if "torch" in named:
        yield finding(
            "wrong-name",
            "error",
            named["torch"],
            "conda has no package 'torch': its name is pytorch",
            "pytorch",
            "https://anaconda.org/pytorch/pytorch",
        )
    if "cuda" in named and "cudatoolkit" in named:
        yield finding(
            "second-cuda",
            "warning",
            named["cuda"],
            "cuda and cudatoolkit are two CUDA toolkits in one environment",
            "keep one",
            PREVIOUS,
        )
    if "cuda-toolkit" in named and not nvidia and not forge:
        yield finding(
            "conda-channel",
            "error",
            named["cuda-toolkit"],
            "cuda-toolkit is in the nvidia and conda-forge channels, and neither is listed",
            "add the channel nvidia",
            "https://anaconda.org/nvidia/cuda-toolkit",
        )
    if "opencv-python" in named:
        yield finding(
            "wrong-name",
            "error",
            named["opencv-python"],
            "conda has no package 'opencv-python': its name is opencv",
            "opencv, or put opencv-python-headless under pip:",
            "https://anaconda.org/conda-forge/opencv",
        )


def _python(torch: Requirement, python: Requirement | None, kb: Knowledge) -> Iterator[LintFinding]:
    """The pytorch channel built each release from 1.11 on for the Pythons of its wheels; conda-forge builds for more."""
    written, version = _series(python), _number(torch)
    if written is None or version is None or (_series(torch) or (0, 0)) < (1, 11):
        return
    known = {
        p
        for v in kb.versions("torch")
        if v == version or v.startswith(f"{version}.")
        for b in kb.builds("torch", v)
        for p in b.pythons or ()
    }
    series = sorted(tuple(int(n) for n in p.split(".")) for p in known)
    if series and not series[0] <= written <= series[-1] and python is not None:
        low, high = (".".join(map(str, s)) for s in (series[0], series[-1]))
        yield finding(
            "no-such-build", "error", python, f"pytorch {version} was built for Python {low} to {high}, and python={'.'.join(map(str, written))} is asked for: conda cannot solve it",
            f"python={high}, or a pytorch that has this Python", PREVIOUS,
        )  # fmt: skip


def _position(channels: Sequence[str], name: str) -> int:
    return next((i for i, c in enumerate(channels) if re.search(rf"(^|/){name}(/|$)", c)), len(channels))


def _number(one: Requirement) -> str | None:
    found = re.search(r"(\d+(?:\.\d+)*)", one.specifier)
    return found[1] if found else None


def _series(one: Requirement | None) -> tuple[int, int] | None:
    """(2, 0) for ``=2.0``, ``==2.0.1``, ``>=2.0,<2.1``; None when open."""
    if one is None or not one.specifier.startswith("=="):
        return None
    version = version_of(_number(one))
    if version is None:
        return None
    return (version.release[0], version.release[1] if len(version.release) > 1 else 0)


def _pytorch(
    torch: Requirement, version: tuple[int, int], toolkit: Requirement | None, selector: Requirement | None,
    cpu: Requirement | None, forge_first: bool, official: bool, nvidia: bool, forge: bool, where: tuple[str, int | None],
) -> Iterator[LintFinding]:  # fmt: skip
    shown = ".".join(map(str, version))
    if version >= (2, 6) and official and not forge:
        yield finding(
            "conda-channel", "error", torch, f"the pytorch channel ends with 2.5.1: pytorch {shown} is not there", "use conda-forge, or pip with the cuXXX index", END,
        )  # fmt: skip
        return
    if toolkit is not None and version >= (1, 13):
        if forge_first and toolkit.specifier and version <= (2, 0):
            yield finding(
                "conda-cudatoolkit",
                "warning",
                toolkit,
                f"cudatoolkit selects no build of pytorch {shown}; conda-forge uses cuda-version",
                "cuda-version=11.8 instead of cudatoolkit",
                PREVIOUS,
            )
        else:
            cuda = _number(toolkit) or "11.8"
            yield finding(
                "conda-cudatoolkit", "error", toolkit,
                f"from 1.13 on conda's pytorch chooses its CUDA by pytorch-cuda: cudatoolkit={cuda} is tied to no build of pytorch {shown}, so the CPU build (or any other) is installed",
                f"replace it by pytorch-cuda={_suggest(version, cuda)} and list the channels pytorch and nvidia", PREVIOUS,
            )  # fmt: skip
    elif toolkit is not None and version in CUDATOOLKIT and not forge_first:
        number = _number(toolkit)
        minor = ".".join((number or "").split(".")[:2])
        if minor and "." in minor and minor not in CUDATOOLKIT[version]:
            yield finding(
                "conda-cudatoolkit", "error", toolkit, f"pytorch {shown} was not built for cudatoolkit {number}: conda finds no solution, or takes a CPU build", f"builds: {', '.join(CUDATOOLKIT[version])}", PREVIOUS,
            )  # fmt: skip
        elif minor == "11.1" and not nvidia and not forge:
            yield finding(
                "conda-channel",
                "error",
                toolkit,
                "cudatoolkit 11.1 is in the nvidia and conda-forge channels only",
                "add the channel nvidia",
                PREVIOUS,
            )
    if selector is not None:
        if version < (1, 13):
            yield finding(
                "conda-cudatoolkit",
                "error",
                selector,
                f"pytorch {shown} knows no pytorch-cuda (it began with 1.13)",
                "use cudatoolkit=11.3",
                PREVIOUS,
            )
        elif version >= (2, 6):
            yield finding(
                "conda-cudatoolkit",
                "warning",
                selector,
                f"pytorch-cuda belongs to the pytorch channel, which ends with 2.5.1: it selects no build of pytorch {shown}",
                "cuda-version=12.6 (conda-forge) instead of pytorch-cuda",
                END,
            )
        elif version in PYTORCH_CUDA and not forge_first:
            number = _number(selector)
            if number and number not in PYTORCH_CUDA[version]:
                yield finding(
                    "conda-cudatoolkit", "error", selector, f"pytorch {shown} was not built for pytorch-cuda {number}: conda finds no solution", f"builds: {', '.join(PYTORCH_CUDA[version])}", PREVIOUS,
                )  # fmt: skip
    if (
        selector is None
        and toolkit is None
        and cpu is None
        and torch.local is None
        and official
        and not forge_first
        and torch.name == "pytorch"
    ):
        yield finding(
            "conda-cpu", "warning", torch, f"nothing chooses a CUDA for pytorch {shown}: the solver may take the CPU build", f"add {'pytorch-cuda=' + PYTORCH_CUDA[version][-1] if version in PYTORCH_CUDA else 'cudatoolkit'}", PREVIOUS,
        )  # fmt: skip


def _suggest(version: tuple[int, int], cuda: str) -> str:
    built = PYTORCH_CUDA.get(version, ("11.8",))
    minor = ".".join(cuda.split(".")[:2])
    return minor if minor in built else built[0] if minor.startswith("11") else built[-1]


def _companions(torch: Requirement, named: dict[str, Requirement], kb: Knowledge) -> Iterator[LintFinding]:
    """torchvision and torchaudio of another release, by the pins of the same releases on PyPI."""
    series = _series(torch)
    if series is None:
        return
    for name in ("torchvision", "torchaudio"):
        other = named.get(name)
        theirs = _series(other)
        if other is None or theirs is None:
            continue
        wanted = set()
        for build in kb.builds(name):
            version = version_of(build.version)
            if version is None or version.release[:2] != theirs:
                continue
            spec = pins(build).get("torch")
            for clause in spec or ():
                pinned = version_of(clause.version)
                if clause.operator == "==" and pinned is not None:
                    wanted.add((pinned.release[0], pinned.release[1]))
        if wanted and series not in wanted:
            right = ", ".join(".".join(map(str, w)) for w in sorted(wanted))
            yield finding(
                "pair", "error", other, f"{name} {'.'.join(map(str, theirs))} belongs to pytorch {right}, and pytorch {'.'.join(map(str, series))} is asked for: conda finds no solution",
                "leave the version out, or take the one that belongs to it", PREVIOUS,
            )  # fmt: skip


def _platform(needs: FileNeeds) -> Iterator[LintFinding]:
    windows = [r for r in needs.conda if r.name in WINDOWS_ONLY]
    if windows:
        names = ", ".join(r.name for r in windows[:6])
        yield finding(
            "conda-platform", "error", windows[0], f"{names}: packages of Windows; this export cannot be solved on Linux (ResolvePackageNotFound)", "export with conda env export --from-history, or remove them", "https://docs.conda.io/projects/conda/en/stable/user-guide/tasks/manage-environments.html#exporting-an-environment-file-across-platforms",
        )  # fmt: skip
    mac = [r for r in needs.conda if r.name in MAC_ONLY]
    if mac:
        yield finding(
            "conda-platform",
            "error",
            mac[0],
            f"{', '.join(r.name for r in mac)}: packages of macOS; this export cannot be solved on Linux",
            "export with conda env export --from-history",
            "https://docs.conda.io/projects/conda/en/stable/user-guide/tasks/manage-environments.html#exporting-an-environment-file-across-platforms",
        )
    built = [r for r in needs.conda if re.search(r"=[\w.]+=\w*(h[0-9a-f]{5,}|py\d+)\w*", r.raw)]
    if len(built) > 5 and not windows:
        yield finding(
            "conda-platform",
            "warning",
            built[0],
            f"{len(built)} packages carry exact build strings: they exist on one platform only, and are removed with time",
            "export with --no-builds or --from-history",
            "https://docs.conda.io/projects/conda/en/stable/user-guide/tasks/manage-environments.html#exporting-an-environment-file-across-platforms",
        )


def _pip_section(needs: FileNeeds, named: dict[str, Requirement]) -> Iterator[LintFinding]:
    pip = {r.name: r for r in needs.requirements}
    if pip and "pip" not in named:
        first = next(iter(pip.values()))
        yield finding(
            "conda-pip",
            "warning",
            first,
            "there is a pip section, but pip is not among the dependencies: conda warns and takes any",
            "add pip to dependencies",
            "https://docs.conda.io/projects/conda/en/stable/user-guide/tasks/manage-environments.html",
        )
    for name in ("torch", "torchvision", "torchaudio"):
        conda_name = "pytorch" if name == "torch" else name
        if name in pip and conda_name in named:
            yield finding(
                "conda-pip",
                "warning",
                pip[name],
                f"{conda_name} from conda and {name} from pip: pip overwrites conda's files, and two CUDA libraries stay",
                "keep one of the two",
                "https://www.anaconda.com/blog/using-pip-in-a-conda-environment",
            )
    if "torch" in pip and "cudatoolkit" in named and "pytorch" not in named:
        yield finding(
            "second-cuda",
            "warning",
            named["cudatoolkit"],
            "pip's torch brings its own CUDA: cudatoolkit is not used by it",
            "remove cudatoolkit",
            PREVIOUS,
        )
    if "torch" in pip and "pytorch-cuda" in named and "pytorch" not in named:
        yield finding(
            "second-cuda",
            "warning",
            named["pytorch-cuda"],
            "pip's torch brings its own CUDA: pytorch-cuda does not choose its build",
            "choose the CUDA by pip's index: --extra-index-url https://download.pytorch.org/whl/cu124",
            PREVIOUS,
        )
    if "torchvision" in pip and "pytorch" in named and "torchvision" not in named:
        yield finding(
            "conda-pip",
            "warning",
            pip["torchvision"],
            "torchvision from pip needs pip's torch: it replaces conda's pytorch",
            "take torchvision from conda",
            PREVIOUS,
        )
