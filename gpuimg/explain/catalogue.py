"""The catalogue of known messages, read from ``data/*.yaml``.

An entry: ``rule`` (its id), ``match`` (patterns, any of them; a space stands for any white space, so that wrapped lines
match too), ``cause`` and ``fix`` (texts; ``{name}`` takes a named group, a fact of the paste or a computed value, and
a part in ``[[…]]`` is left out when a value in it is missing), ``confidence`` and ``source``. Optional: ``needs`` and
``not`` (patterns over the whole paste), ``when`` and ``unless`` (flags of the paste, see ``paste``), ``cases`` (the
first whose ``when``/``unless``/``needs``/``not`` hold replaces texts and confidence), ``compute`` (a function of
``computed``), ``each`` (a named group: one cause per distinct value), ``hides`` (rules that say less),
``generic`` (speaks only when no other entry claims the same line), ``weight`` (order among equals), ``case`` (true: the
patterns mind upper and lower case) and ``examples`` (real messages, each tested).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import resources
from typing import Any, Literal, cast

import yaml

Confidence = Literal["high", "medium", "low"]
_TEXTS = ("cause", "fix", "confidence", "source")
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Pattern:
    """A regular expression with a literal that any match must hold, so that most of them cost one substring search."""

    def __init__(self, text: str, *, case: bool = False) -> None:
        self.text = text
        self.literal = _literal(text)
        self._case = case
        self._compiled: re.Pattern[str] | None = None

    def finditer(self, text: str, lowered: str) -> list[re.Match[str]]:
        """All matches; ``lowered`` is ``text.lower()``."""
        if self.literal and self.literal not in lowered:
            return []
        if self._compiled is None:
            flags = re.MULTILINE | (0 if self._case else re.IGNORECASE)
            self._compiled = re.compile(_spaced(self.text), flags)
        return list(self._compiled.finditer(text))


def _spaced(text: str) -> str:
    """A space matches any run of white space (with ``*`` or ``?`` after it also none); inside a class it stays one."""
    out, inside, place = [], False, 0
    while place < len(text):
        char = text[place]
        if char == "\\" and place + 1 < len(text):
            out.append(text[place : place + 2])
            place += 2
            continue
        if char == "[":
            inside = True
        elif char == "]":
            inside = False
        if char == " " and not inside:
            optional = text[place + 1 : place + 2] in ("*", "?", "+")
            out.append(r"\s+" if text[place + 1 : place + 2] not in ("*", "?") else r"\s*")
            place += 1 if optional else 0
        else:
            out.append(char)
        place += 1
    return "".join(out)


def _literal(text: str) -> str:
    """The longest run of plain characters that every match holds; '' when there is none to be sure of."""
    stripped = re.sub(r"(?<!\\)\[(?:[^\]\\]|\\.)*\](?:[*+?]|\{[\d,]*\})?\??", "\x00", text)
    while True:  # groups, innermost first: they may hold alternatives or be optional
        shorter = re.sub(r"(?<!\\)\((?:[^()\\]|\\.)*\)[*+?]?(?:\{[\d,]*\})?\??", "\x00", stripped)
        if shorter == stripped:
            break
        stripped = shorter
    if re.search(r"(?<!\\)\|", stripped):
        return ""
    stripped = re.sub(r"\\[A-Za-z][*+?]?(?:\{[\d,]*\})?\??", "\x00", stripped)
    stripped = re.sub(r"(?:\\.|[^\\\x00])(?:[*?]|\{[\d,]*\})\??", "\x00", stripped)
    stripped = re.sub(r"(?<!\\)[.^$+ ]", "\x00", stripped)
    stripped = re.sub(r"\\(.)", r"\1", stripped)
    return max(stripped.lower().split("\x00"), key=len)


@dataclass(frozen=True)
class Condition:
    """What must hold of the paste besides the message."""

    when: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    needs: tuple[Pattern, ...] = ()
    bars: tuple[Pattern, ...] = ()

    def holds(self, flags: frozenset[str], text: str, lowered: str) -> bool:
        return (
            all(any(flag in flags for flag in name.split("|")) for name in self.when)
            and not any(flag in flags for flag in self.unless)
            and all(p.finditer(text, lowered) for p in self.needs)
            and not any(p.finditer(text, lowered) for p in self.bars)
        )


@dataclass(frozen=True)
class Variant:
    """Texts that hold under a condition."""

    condition: Condition
    texts: dict[str, str]


@dataclass(frozen=True)
class Entry:
    """One known kind of message."""

    rule: str
    patterns: tuple[Pattern, ...]
    condition: Condition
    texts: dict[str, str]
    variants: tuple[Variant, ...] = ()
    compute: str | None = None
    each: str | None = None
    hides: tuple[str, ...] = ()
    generic: bool = False
    weight: int = 0
    examples: tuple[str, ...] = field(default=())


def _patterns(row: dict[str, Any], name: str, case: bool) -> tuple[Pattern, ...]:
    value = row.get(name, [])
    return tuple(Pattern(text, case=case) for text in ([value] if isinstance(value, str) else value))


def _condition(row: dict[str, Any], case: bool) -> Condition:
    return Condition(
        tuple(row.get("when", ())),
        tuple(row.get("unless", ())),
        _patterns(row, "needs", case),
        _patterns(row, "not", case),
    )


def _texts(row: dict[str, Any]) -> dict[str, str]:
    return {name: " ".join(str(row[name]).split()) for name in _TEXTS if name in row}


def _entry(row: dict[str, Any]) -> Entry:
    case = bool(row.get("case", False))
    return Entry(
        rule=row["rule"],
        patterns=_patterns(row, "match", case),
        condition=_condition(row, case),
        texts=_texts(row),
        variants=tuple(Variant(_condition(v, case), _texts(v)) for v in row.get("cases", ())),
        compute=row.get("compute"),
        each=row.get("each"),
        hides=tuple(row.get("hides", ())),
        generic=bool(row.get("generic", False)),
        weight=int(row.get("weight", 0)),
        examples=tuple(row.get("examples", ())),
    )


def read_data(name: str) -> Any:
    """One data file of this room, parsed."""
    text = resources.files("gpuimg.explain").joinpath(f"data/{name}").read_text(encoding="utf-8")
    return yaml.load(text, Loader=_LOADER)


@lru_cache(maxsize=1)
def entries() -> tuple[Entry, ...]:
    """The whole catalogue, in the order of the files' names and rows."""
    folder = resources.files("gpuimg.explain").joinpath("data")
    names = sorted(item.name for item in folder.iterdir() if item.name.startswith("messages-"))
    return tuple(_entry(row) for name in names for row in cast("list[dict[str, Any]]", read_data(name)))
