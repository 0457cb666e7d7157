"""Versions as integers: CUDA minors, compute capabilities, drivers. 2.10 is newer than 2.9."""

from __future__ import annotations

import re
from functools import lru_cache

from packaging.specifiers import SpecifierSet
from packaging.version import Version


@lru_cache(maxsize=65536)
def parts(text: str) -> tuple[int, ...]:
    """'550.54.14' → (550, 54, 14); letters end a part ('9.0a' → (9, 0))."""
    numbers = []
    for piece in text.strip().split("."):
        found = re.match(r"\d+", piece)
        if not found:
            break
        numbers.append(int(found[0]))
    return tuple(numbers)


def at_least(have: str, want: str) -> bool:
    """``have`` ≥ ``want``, missing parts as zero."""
    a, b = parts(have), parts(want)
    length = max(len(a), len(b))
    return a + (0,) * (length - len(a)) >= b + (0,) * (length - len(b))


def minor(version: str) -> str:
    """'12.4.1' → '12.4'; a lone major stays."""
    return ".".join(version.split(".")[:2])


def major(version: str) -> int:
    """'12.4' → 12."""
    return parts(version)[0] if parts(version) else 0


@lru_cache(maxsize=4096)
def code_target(name: str) -> tuple[str, int, int, str] | None:
    """'sm_90a' → ('sm', 9, 0, 'a'); 'compute_120' → ('compute', 12, 0, '')."""
    found = re.fullmatch(r"(sm|compute)_(\d{1,2})(\d)([af]?)", name)
    return (found[1], int(found[2]), int(found[3]), found[4]) if found else None


@lru_cache(maxsize=8192)
def within(version: Version, specifier: str) -> bool:
    """Does a version satisfy a PEP 440 specifier, pre-releases included? Raises InvalidSpecifier."""
    return SpecifierSet(specifier).contains(version, prereleases=True)
