"""Text → causes: which entries of the catalogue match, with which values, and in which order."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

from gpuimg.explain.catalogue import Confidence, Entry, entries
from gpuimg.explain.computed import FUNCTIONS, Drop
from gpuimg.explain.paste import Situation, clean, read_situation
from gpuimg.nouns import Cause

_RANK = {"high": 0, "medium": 1, "low": 2}
_MOST = 8
_EVIDENCE = 300
"""Characters of the matching line that are quoted."""


@dataclass(frozen=True)
class _Hit:
    entry: Entry
    cause: Cause
    place: int
    line: tuple[int, int]


def explain(text: str) -> tuple[Cause, ...]:
    """Causes of whatever errors the text holds, most likely first; empty when nothing is recognised."""
    plain = clean(text)
    situation = read_situation(plain)
    lowered = plain.lower()
    if len(lowered) != len(plain):  # a few letters change length; positions must agree
        lowered = plain
    hits = [hit for entry in entries() for hit in _hits(entry, situation, lowered)]
    hidden = {rule for hit in hits for rule in hit.entry.hides}
    kept = [hit for hit in hits if hit.entry.rule not in hidden and hit.cause.rule not in hidden]
    claimed = [hit.line for hit in kept if not hit.entry.generic]
    kept = [hit for hit in kept if not (hit.entry.generic and any(_overlap(hit.line, line) for line in claimed))]
    kept.sort(key=lambda hit: (_RANK[hit.cause.confidence], -hit.entry.weight, hit.place))
    seen: set[tuple[str, str]] = set()
    out = []
    for hit in kept:
        key = (hit.cause.rule, hit.cause.cause)
        if key not in seen:
            seen.add(key)
            out.append(hit.cause)
    return tuple(out[:_MOST])


def _overlap(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return a[0] < b[1] and b[0] < a[1]


def _hits(entry: Entry, situation: Situation, lowered: str) -> Iterator[_Hit]:
    matches = sorted(
        (m for pattern in entry.patterns for m in pattern.finditer(situation.text, lowered)), key=lambda m: m.start()
    )
    if not matches or not entry.condition.holds(situation.flags, situation.text, lowered):
        return
    if not entry.each:  # of several lines that match, the one that says most
        matches.sort(key=lambda m: (-sum(1 for value in m.groupdict().values() if value), m.start()))
    seen: set[str | None] = set()
    for match in matches:
        key = match.groupdict().get(entry.each) if entry.each else None
        if key in seen:
            continue
        seen.add(key)
        values: dict[str, str] = {**situation.values, **{k: v for k, v in match.groupdict().items() if v}}
        if entry.compute:
            try:
                values.update(FUNCTIONS[entry.compute](values, situation))
            except Drop:
                continue
        texts = dict(entry.texts)
        for variant in entry.variants:
            if variant.condition.holds(situation.flags, situation.text, lowered):
                texts.update(variant.texts)
                break
        line = _line(situation.text, match)
        cause = Cause(
            rule=values.get("rule") or entry.rule,
            cause=fill(texts["cause"], values),
            evidence=_quoted(situation.text[line[0] : line[1]]),
            fix=fill(texts["fix"], values),
            confidence=cast("Confidence", values.get("confidence") or texts["confidence"]),
            source=values.get("source") or texts["source"],
        )
        yield _Hit(entry, cause, match.start(), line)
        if len(seen) >= _MOST:
            return


def fill(template: str, values: dict[str, str]) -> str:
    """``{name}`` replaced; a ``[[part]]`` goes when a value in it is missing, as does an unknown name outside one."""

    def part(found: re.Match[str]) -> str:
        names = re.findall(r"\{(\w+)\}", found.group(1))
        return found.group(1) if all(values.get(name) for name in names) else ""

    shown = re.sub(r"\[\[(.*?)\]\]", part, template)
    return re.sub(r"\{(\w+)\}", lambda m: values.get(m.group(1)) or "…", shown).strip()


def _line(text: str, match: re.Match[str]) -> tuple[int, int]:
    start = text.rfind("\n", 0, match.start()) + 1
    end = text.find("\n", match.end())
    return start, len(text) if end < 0 else end


def _quoted(text: str) -> str:
    shown = " ".join(text.split())
    return shown if len(shown) <= _EVIDENCE else shown[: _EVIDENCE - 1] + "…"
