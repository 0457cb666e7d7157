"""What a rule returns, and how many of them make one verdict."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from gpuimg.nouns import Answer, Finding, FitVerdict

Mode = Literal["native", "compat", "ptx"]


@dataclass(frozen=True)
class Outcome:
    """A finding, how it runs when it does (``mode``), and which facts would decide when nobody knows (``missing``)."""

    finding: Finding
    mode: Mode = "native"
    missing: tuple[str, ...] = ()


def outcome(
    rule: str,
    verdict: Answer,
    evidence: str,
    source: str,
    *,
    gpu: str | None = None,
    fix: str | None = None,
    mode: Mode = "native",
    missing: tuple[str, ...] = (),
) -> Outcome:
    """Shorthand: an ``Outcome`` with its finding."""
    return Outcome(Finding(rule, verdict, evidence, source, gpu, fix), mode, missing)


def combine(outcomes: Iterable[Outcome]) -> FitVerdict:
    """A ``no`` decides; else an ``unknown``; else the worst way of running. No outcome at all is unknown."""
    seen = list(outcomes)
    verdicts = {o.finding.verdict for o in seen}
    if "no" in verdicts:
        return "does-not-fit"
    if "unknown" in verdicts or not seen:
        return "unknown"
    modes = {o.mode for o in seen}
    if "ptx" in modes:
        return "fits-via-ptx"
    return "fits-with-compat" if "compat" in modes else "fits"


RANK: dict[str, int] = {"fits": 0, "fits-with-compat": 1, "fits-via-ptx": 2, "unknown": 3, "does-not-fit": 4}
"""Best first: several cards are as good as the worst."""


def worst(verdicts: Iterable[FitVerdict]) -> FitVerdict:
    """The worst of several verdicts; 'unknown' for none."""
    seen = list(verdicts)
    return max(seen, key=lambda v: RANK[v]) if seen else "unknown"
