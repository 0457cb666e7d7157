"""NVIDIA_REQUIRE_CUDA as the container toolkit reads it: a blank is OR, a comma is AND.

Source: github NVIDIA/nvidia-container-toolkit internal/requirements: properties cuda, driver, arch, brand; operators
>=, <=, !=, =, <, >; versions compared as numbers, brand as a string; unknown properties are ignored. CDI modes
(default of
nvidia-container-runtime from 1.18) do not evaluate it at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from gpuimg.knowledge.rules.numbers import parts

SOURCE = "https://github.com/NVIDIA/nvidia-container-toolkit/tree/main/internal/requirements"
_CLAUSE = re.compile(r"^(\w+)\s*(>=|<=|!=|==|=|<|>)\s*([\w.]+)$")

BRAND_NAMES: dict[str, frozenset[str]] = {
    "geforce": frozenset({"geforce", "geforcertx"}), "titan": frozenset({"titan", "titanrtx"}),
    "quadro": frozenset({"quadro"}), "quadrortx": frozenset({"quadrortx", "quadro"}),
    "nvidiartx": frozenset({"nvidiartx", "quadrortx"}), "nvidia": frozenset({"nvidia", "tesla"}),
    "tesla": frozenset({"tesla", "nvidia"}),
}  # fmt: skip
"""Brand of a card → the names drivers have given it over time (NVML renamed several)."""


@dataclass(frozen=True)
class Facts:
    """What the expression is asked about; None is not known."""

    cuda: str | None = None
    """driver_cuda."""
    driver: str | None = None
    arch: str | None = None
    brand: str | None = None


def _compare(have: tuple[int, ...], operator: str, want: tuple[int, ...]) -> bool:
    length = max(len(have), len(want))
    a, b = have + (0,) * (length - len(have)), want + (0,) * (length - len(want))
    return {">=": a >= b, "<=": a <= b, "<": a < b, ">": a > b, "!=": a != b}.get(operator, a == b)


def _clause(text: str, facts: Facts) -> bool | None:
    found = _CLAUSE.match(text)
    if not found:
        return True
    name, operator, value = found[1].lower(), found[2], found[3]
    if name == "brand":
        if facts.brand is None:
            return None
        same = value.lower() in BRAND_NAMES.get(facts.brand, frozenset({facts.brand}))
        return same if operator in {"=", "=="} else not same
    have = {"cuda": facts.cuda, "driver": facts.driver, "arch": facts.arch}.get(name, "")
    if name not in {"cuda", "driver", "arch"}:
        return True
    if not have:
        return None
    return _compare(parts(have), operator, parts(value))


def _all(values: Iterable[bool | None]) -> bool | None:
    seen = list(values)
    if False in seen:
        return False
    return None if None in seen else True


def holds(expression: str, facts: Facts) -> bool | None:
    """True, False, or None when a fact that would decide is not known. An empty expression holds."""
    alternatives = [_all(_clause(c, facts) for c in option.split(",") if c) for option in expression.split()]
    if not alternatives or True in alternatives:
        return True
    return None if None in alternatives else False


def admitted_branches(expression: str, brand: str | None = "tesla") -> tuple[int, ...]:
    """Driver branches an expression lets in for a brand although its own CUDA is newer."""
    found: set[int] = set()
    names = BRAND_NAMES.get(brand or "", frozenset({brand or ""}))
    for option in expression.split():
        clauses = option.split(",")
        brands = {c.partition("=")[2] for c in clauses if c.startswith("brand=")}
        branch = re.search(r"driver>=(\d+)", option)
        if branch and brands & names:
            found.add(int(branch[1]))
    return tuple(sorted(found))
