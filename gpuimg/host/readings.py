"""What the parsers of one form each hand over, and how numbers with units are read."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from gpuimg.nouns import Gpu, HostFinding, Requirement

NOT_GIVEN = {"", "n/a", "[n/a]", "[not supported]", "not supported", "unknown error", "[unknown error]", "none", "-"}


@dataclass
class Readings:
    """Facts found in one text. Only what was said; ``findings`` are those that the form itself shows."""

    gpus: list[Gpu] = field(default_factory=list)
    driver: str | None = None
    driver_cuda: str | None = None
    toolkit: str | None = None
    cudnn: str | None = None
    python: str | None = None
    os: str | None = None
    glibc: str | None = None
    machine: str | None = None
    runtime: str | None = None
    frameworks: list[Requirement] = field(default_factory=list)
    findings: list[HostFinding] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    """Facts that the form leaves open and that matter."""

    def empty(self) -> bool:
        return not (self.gpus or self.driver or self.driver_cuda or self.findings or self.frameworks or self.toolkit)


def number(text: str | None) -> float | None:
    """'350W' → 350.0, '24576 MiB' → 24576.0; None for N/A and the like."""
    if text is None or text.strip().lower() in NOT_GIVEN:
        return None
    found = re.search(r"-?\d+(?:\.\d+)?", text)
    return float(found.group()) if found else None


def whole(text: str | None) -> int | None:
    """As :func:`number`, rounded down."""
    found = number(text)
    return int(found) if found is not None else None


def given(text: str | None) -> str | None:
    """The text, unless it says that nothing is known."""
    if text is None or text.strip().lower() in NOT_GIVEN:
        return None
    return text.strip()


def yes(text: str | None) -> bool | None:
    """'Yes', 'Enabled', 'Active', 'On' → True; 'No' … → False; None when not given."""
    word = (text or "").strip().lower()
    if word in {"yes", "enabled", "active", "on", "true"}:
        return True
    if word in {"no", "disabled", "not active", "off", "false"}:
        return False
    return None


def device_id(text: str | None) -> str | None:
    """'0x233510DE' or '233510DE' → '2335'."""
    found = re.search(r"(?:0x)?([0-9A-Fa-f]{4})10DE", text or "", re.I)
    return found.group(1).upper() if found else None
