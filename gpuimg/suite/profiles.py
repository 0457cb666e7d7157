"""Which checks a run makes, which of them must pass, and the floors they are held to. Data in ``data/profiles.json``.

A profile::

    {"extends": "base", "title": "…", "budget_s": 300,
     "required": ["host.*", "compute.matmul"], "optional": ["dist.*"],
     "floors": {"compute.matmul": {"fraction_of_spec": 0.7}}, "timeouts": {"train.epoch": 120}}

Ids may end in ``*``. Keys other than these are refused.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from .registry import read_data

KEYS = ("extends", "title", "budget_s", "required", "optional", "floors", "timeouts")


class BadProfile(ValueError):
    """A profile or a choice of checks that cannot be read; the message is for the user."""


@dataclass(frozen=True)
class Profile:
    """A profile with its parents merged in. Patterns are kept as written."""

    name: str
    title: str
    budget_s: float
    required: tuple[str, ...]
    optional: tuple[str, ...]
    floors: dict[str, dict[str, Any]] = field(default_factory=dict)
    timeouts: dict[str, float] = field(default_factory=dict)

    def wants(self, check_id: str) -> bool | None:
        """True when required, False when optional, None when not part of the profile. Required wins."""
        if any(fnmatchcase(check_id, pattern) for pattern in self.required):
            return True
        if any(fnmatchcase(check_id, pattern) for pattern in self.optional):
            return False
        return None


def bundled() -> dict[str, dict[str, Any]]:
    """The shipped profiles, raw."""
    value = json.loads(read_data("profiles.json").decode("utf-8"))
    profiles: dict[str, dict[str, Any]] = value["profiles"]
    return profiles


def _nearest(word: str, choices: Iterable[str]) -> str:
    found = difflib.get_close_matches(word, list(choices), n=1)
    return f"; did you mean {found[0]!r}?" if found else ""


def load_profile(name: str, known: Iterable[str], file: str | None = None) -> Profile:
    """The profile ``name``, from ``file`` (one profile, or ``{"profiles": {...}}``) on top of the shipped ones.

    ``known``: ids of all checks; a pattern that matches none of them is refused, so a typing error cannot silently
    drop a check. Raises BadProfile.
    """
    raw = bundled()
    if file is not None:
        try:
            value = json.loads(Path(file).read_text(encoding="utf-8"))
        except OSError as error:
            raise BadProfile(f"{file}: {error.strerror or error}") from None
        except json.JSONDecodeError as error:
            raise BadProfile(f"{file}:{error.lineno}: not JSON: {error.msg}") from None
        if not isinstance(value, dict):
            raise BadProfile(f"{file}:1: a profile is a JSON object")
        if "profiles" in value:
            raw.update(value["profiles"])
        else:
            raw[name] = value
    where = file or "profiles"
    ids = list(known)
    return _merge(name, raw, ids, where, ())


def _merge(name: str, raw: dict[str, dict[str, Any]], ids: list[str], where: str, seen: tuple[str, ...]) -> Profile:
    if name not in raw:
        raise BadProfile(f"no profile {name!r}; there are: {', '.join(sorted(raw))}{_nearest(name, raw)}")
    if name in seen:
        raise BadProfile(f"{where}: profile {name!r} extends itself")
    row = raw[name]
    for key in row:
        if key not in KEYS:
            raise BadProfile(
                f"{where}: profile {name!r}: unknown key {key!r}; allowed: {', '.join(KEYS)}{_nearest(key, KEYS)}"
            )
    required, optional = list(row.get("required", [])), list(row.get("optional", []))
    for pattern in [*required, *optional, *row.get("floors", {}), *row.get("timeouts", {})]:
        if not isinstance(pattern, str) or not (
            any(fnmatchcase(check_id, pattern) for check_id in ids) or pattern == "user.run"
        ):
            raise BadProfile(f"{where}: profile {name!r}: no check is called {pattern!r}{_nearest(str(pattern), ids)}")
    floors = {key: dict(value) for key, value in row.get("floors", {}).items()}
    timeouts = {key: float(value) for key, value in row.get("timeouts", {}).items()}
    title, budget = row.get("title"), row.get("budget_s")
    if row.get("extends"):
        parent = _merge(row["extends"], raw, ids, where, (*seen, name))
        required = [*parent.required, *required]
        optional = [*parent.optional, *optional]
        for key, value in parent.floors.items():
            floors[key] = {**value, **floors.get(key, {})}
        timeouts = {**parent.timeouts, **timeouts}
        title, budget = title or parent.title, budget or parent.budget_s
    return Profile(name, str(title or name), float(budget or 300), tuple(required), tuple(optional), floors, timeouts)
