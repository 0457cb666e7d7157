"""Pure rules about versions: driver path, NVIDIA_REQUIRE, machine code against card, libraries as loaded.

Nothing here touches the machine; every function is tested on recorded facts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


def numbers(version: str) -> tuple[int, ...]:
    """'580.159.04' → (580, 159, 4); stops at the first part that is no number."""
    out = []
    for part in re.split(r"[.\-+]", version.strip()):
        found = re.match(r"\d+", part)
        if found is None:
            break
        out.append(int(found.group()))
    return tuple(out)


def at_least(version: str, floor: str) -> bool:
    """``version >= floor``, missing parts count as 0."""
    a, b = numbers(version), numbers(floor)
    width = max(len(a), len(b))
    return a + (0,) * (width - len(a)) >= b + (0,) * (width - len(b))


# --- driver -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DriverPath:
    """How a wheel_cuda gets onto a driver: ``native``, ``minor``, ``forward``, ``fail`` or ``unknown``."""

    path: str
    why: str
    hint: str | None = None


def driver_path(
    wheel_cuda: str | None,
    driver: str | None,
    driver_cuda: str | None,
    tables: Mapping[str, Any],
    *,
    forward: bool = False,
    data_centre: bool | None = None,
) -> DriverPath:
    """Decide the path. ``tables``: ``drivers`` of cards.json. ``forward``: a cuda-compat libcuda is the one loaded.

    Rule: native when the driver is at least the toolkit's own; else forward compatibility where a cuda-compat libcuda is
    loaded (data-centre cards; it fails on others whatever else would do); else minor-version compatibility from the
    floor of the CUDA major (without PTX); else it fails.
    """
    if wheel_cuda is None:
        return DriverPath("unknown", "the framework does not say which wheel_cuda it was built with")
    if driver is None:
        return DriverPath("unknown", "the driver's version cannot be read here")
    short = ".".join(str(n) for n in numbers(wheel_cuda)[:2])
    major = short.split(".")[0]
    native = tables.get("native", {}).get(short)
    floor = tables.get("minor_compat", {}).get(major)
    if native is not None and at_least(driver, native):
        return DriverPath("native", f"driver {driver} is at least {native}, which CUDA {short} came with")
    if not forward and driver_cuda is not None and at_least(driver_cuda, short):
        return DriverPath("native", f"driver_cuda {driver_cuda} is at least wheel_cuda {short}")
    if forward:
        if data_centre is False:
            return DriverPath(
                "fail",
                f"a cuda-compat libcuda is loaded on a card that does not support forward compatibility "
                f"(wheel_cuda {short}, driver {driver})",
                "error 804 follows: take the compat folder off LD_LIBRARY_PATH and a build with an older wheel_cuda",
            )
        return DriverPath("forward", f"wheel_cuda {short} runs on driver {driver} through cuda-compat")
    if floor is not None and at_least(driver, floor):
        return DriverPath(
            "minor",
            f"driver {driver} is older than wheel_cuda {short}, but at least {floor}: minor-version compatibility",
            "works with machine code only: anything that compiles PTX at run time can fail with error 222",
        )
    if floor is None and native is None:
        return DriverPath("unknown", f"nothing is known about CUDA {short}")
    return DriverPath(
        "fail",
        f"driver {driver} is older than {floor or native}, the oldest that runs wheel_cuda {short}",
        f"take a build with an older wheel_cuda, or a server whose driver is {floor or native} or newer; on a "
        "data-centre card the cuda-compat package is a third way",
    )


# --- NVIDIA_REQUIRE -------------------------------------------------------------------------------------------------

_OPERATORS = {
    ">=": lambda a, b: a >= b,
    "<=": lambda a, b: a <= b,
    "!=": lambda a, b: a != b,
    ">": lambda a, b: a > b,
    "<": lambda a, b: a < b,
    "=": lambda a, b: a == b,
}


def require_clause(clause: str, facts: Mapping[str, str | None]) -> bool | None:
    """One ``key<op>value``; None when the fact is not known or the clause is not understood."""
    found = re.match(r"^\s*(\w+)\s*(>=|<=|!=|>|<|=)\s*(\S+)\s*$", clause)
    if found is None:
        return None
    key, operator, value = found.groups()
    have = facts.get(key)
    if have is None:
        return None
    if key == "brand":
        same = have.lower() == value.lower()
        return same if operator == "=" else (not same if operator == "!=" else None)
    a, b = numbers(have), numbers(value)
    width = max(len(a), len(b))
    return bool(_OPERATORS[operator](a + (0,) * (width - len(a)), b + (0,) * (width - len(b))))


def require(text: str, facts: Mapping[str, str | None]) -> tuple[bool | None, str | None]:
    """Evaluate a whole NVIDIA_REQUIRE_*: spaces are OR, commas AND. ``(answer, the clause that held)``.

    ``facts``: cuda (driver_cuda), driver, arch (compute capability), brand. None: cannot be told.
    """
    unknown = False
    for alternative in text.split():
        answers = [require_clause(part, facts) for part in alternative.split(",") if part]
        if all(a is True for a in answers) and answers:
            return True, alternative
        if not any(a is False for a in answers):
            unknown = True
    return (None if unknown else False), None


BRANDS = {
    0: "unknown",
    1: "quadro",
    2: "tesla",
    3: "nvs",
    4: "grid",
    5: "geforce",
    6: "titan",
    7: "vapps",
    8: "vpc",
    9: "vcs",
    10: "vws",
    11: "cloudgaming",
    12: "quadrortx",
    13: "nvidiartx",
    14: "nvidia",
    15: "geforcertx",
    16: "titanrtx",
}
"""nvml.h nvmlBrandType → the word of NVIDIA_REQUIRE_CUDA."""


# --- machine code -----------------------------------------------------------------------------------------------------


def _capability(text: str) -> tuple[int, int, str] | None:
    """'sm_90a' → (9, 0, 'a'); '12.0' → (12, 0, '')."""
    found = re.match(r"^(?:sm_|compute_)?(\d+)(?:\.(\d))?([af]?)$", text.strip())
    if found is None:
        return None
    digits, minor, letter = found.groups()
    if minor is not None:
        return int(digits), int(minor), letter
    return int(digits[:-1] or 0), int(digits[-1]), letter


def coverage(capability: str, code: Iterable[str]) -> tuple[str, str | None]:
    """How code for ``['sm_80', 'sm_90a', 'compute_90', …]`` runs on a card: ``(native|ptx|none|unknown, by)``.

    Machine code runs on the same major and a minor not above the card's; ``a`` targets on exactly theirs, ``f``
    targets within their major from their minor up; PTX on anything not below it, once the driver compiled it.
    """
    card = _capability(capability)
    if card is None:
        return "unknown", None
    best: tuple[tuple[int, int], str] | None = None
    ptx: tuple[tuple[int, int], str] | None = None
    for item in code:
        target = _capability(item)
        if target is None:
            continue
        major, minor, letter = target
        if item.startswith("compute_"):
            exact = letter == "a"
            fits = (major, minor) == card[:2] if exact else (major, minor) <= card[:2]
            if letter == "f":
                fits = major == card[0] and minor <= card[1]
            if fits and (ptx is None or (major, minor) > ptx[0]):
                ptx = ((major, minor), item)
        else:
            fits = major == card[0] and minor <= card[1]
            if letter == "a":
                fits = (major, minor) == card[:2]
            if fits and (best is None or (major, minor) > best[0]):
                best = ((major, minor), item)
    if best is not None:
        return "native", best[1]
    if ptx is not None:
        return "ptx", ptx[1]
    return "none", None


def common_code(counts: Mapping[str, int]) -> list[str]:
    """Targets that most kernels of a library have: at least a quarter as many entries as the commonest.

    The union would claim support that exists for single kernels only (measured: libtorch_cuda of 2.15 holds 476
    entries for each real target and a handful for sm_89, 90a, 103f).
    """
    if not counts:
        return []
    most = max(counts.values())
    return sorted(target for target, count in counts.items() if 4 * count >= most)


# --- libraries as loaded ----------------------------------------------------------------------------------------------

FAMILIES = (
    ("cudart", r"libcudart\.so"),
    ("cublas", r"libcublas\.so"),
    ("cublasLt", r"libcublasLt\.so"),
    ("cudnn", r"libcudnn(?:_\w+)?\.so"),
    ("nccl", r"libnccl\.so"),
    ("cufft", r"libcufft\.so"),
    ("curand", r"libcurand\.so"),
    ("cusolver", r"libcusolver\.so"),
    ("cusparse", r"libcusparse\.so"),
    ("cusparseLt", r"libcusparseLt\.so"),
    ("nvrtc", r"libnvrtc\.so"),
    ("nvjitlink", r"libnvJitLink\.so"),
    ("cupti", r"libcupti\.so"),
    ("cufile", r"libcufile\.so"),
    ("nvshmem", r"libnvshmem_host\.so"),
    ("tensorrt", r"libnvinfer\.so"),
    ("cuda", r"libcuda\.so"),
    ("nvml", r"libnvidia-ml\.so"),
)


def family_of(path: str) -> str | None:
    """CUDA family of a library's path, or None."""
    name = path.rsplit("/", 1)[-1]
    for family, pattern in FAMILIES:
        if re.match(pattern, name):
            return family
    return None


def group_maps(maps: str) -> dict[str, list[str]]:
    """Text of /proc/self/maps → family → sorted distinct paths of mapped libraries."""
    found: dict[str, set[str]] = {}
    for line in maps.splitlines():
        parts = line.split(None, 5)
        if len(parts) < 6 or ".so" not in parts[5]:
            continue
        path = parts[5].replace(" (deleted)", "")
        family = family_of(path)
        if family is not None:
            found.setdefault(family, set()).add(path)
    return {family: sorted(paths) for family, paths in sorted(found.items())}


def _leaf(path: str) -> str:
    """File name up to the major version: two copies of one library share it."""
    found = re.match(r"(.+?\.so)", path.rsplit("/", 1)[-1])
    return found.group(1) if found else path


def loaded_problems(
    loaded: Mapping[str, Sequence[str]],
    versions: Mapping[str, str],
    declared: Mapping[str, str | None],
) -> tuple[list[tuple[str, str]], list[str]]:
    """``(problems, notes)`` of the libraries of one process; a problem is ``(what, what to do)``.

    ``loaded``: family → paths; ``versions``: family → version by the library's own call; ``declared``: family → what
    the framework was built with or its wheel pins (``cudart`` is the wheel_cuda, two numbers).
    """
    problems: list[tuple[str, str]] = []
    notes: list[str] = []
    for family, paths in loaded.items():
        by_leaf: dict[str, list[str]] = {}
        for path in paths:
            by_leaf.setdefault(_leaf(path), []).append(path)
        for leaf, copies in by_leaf.items():
            if len(copies) > 1:
                problems.append(
                    (
                        f"{leaf} is mapped {len(copies)} times: {', '.join(copies)}",
                        f"two copies of {family} meet in one process: leave one on the loader's path (LD_LIBRARY_PATH, "
                        "system packages and wheels each bring their own)",
                    )
                )
        folders = sorted({path.rsplit("/", 1)[0] for path in paths})
        if family == "cudnn" and len(folders) > 1 and len(by_leaf) == len(paths):
            problems.append(
                (
                    f"cuDNN's libraries come from {len(folders)} folders: {', '.join(folders)}",
                    "sub-libraries of two cuDNN versions do not work together (CUDNN_STATUS_SUBLIBRARY_VERSION_"
                    "MISMATCH): leave one cuDNN on the loader's path",
                )
            )
    for family, want in declared.items():
        have = versions.get(family)
        if want is None or have is None:
            continue
        width = min(len(numbers(want)), len(numbers(have)), 2 if family == "cudart" else 3)
        a, b = numbers(have)[:width], numbers(want)[:width]
        if a == b:
            continue
        if a[:1] != b[:1] or a < b:
            word = "is older than" if a < b else "has another major version than"
            problems.append(
                (
                    f"{family} as loaded, {have}, {word} the {want} that the framework declares",
                    f"install {family} {want} or newer of the same major, and take other copies off the loader's path",
                )
            )
        else:
            notes.append(f"{family} as loaded, {have}, is newer than the declared {want}")
    return problems, notes
