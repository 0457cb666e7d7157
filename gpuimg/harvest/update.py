"""A new ``pypi.json`` from what was collected: floors that refuse a shrunken scrape, the diff, the atomic write."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuimg.errors import GpuimgError

Row = dict[str, Any]
Builds = Mapping[str, list[Row]]

_FLOOR = 0.9
"""A package may lose a tenth of its rows (yanked releases); more is a broken scrape until a person says otherwise."""


@dataclass(frozen=True)
class Change:
    """One difference between two data files."""

    kind: str
    """'added', 'removed' or 'changed'."""
    package: str
    key: str
    """version machine [extra]."""
    fields: tuple[tuple[str, object, object], ...] = ()
    """(field, before, after) of a changed row."""

    def to_json(self) -> dict[str, Any]:
        changed = [{"field": f, "before": b, "after": a} for f, b, a in self.fields]
        return {"kind": self.kind, "package": self.package, "key": self.key, **({"fields": changed} if changed else {})}


def row_key(row: Row) -> str:
    """What makes a row the same row in two files."""
    parts = [row["version"], row["machine"], row.get("extra") or "", row.get("local") or ""]
    return " ".join(str(p) for p in parts if p)


def diff(before: Builds, after: Builds, *, only: set[str] | None = None) -> list[Change]:
    """Rows added, removed and changed, sorted. ``source``, sizes and ``how`` do not count as changes."""
    quiet = {"source", "size_mib", "how", "released", "notes"}
    changes: list[Change] = []
    for package in sorted(set(before) | set(after)):
        if only is not None and package not in only:
            continue
        old = {row_key(r): r for r in before.get(package, [])}
        new = {row_key(r): r for r in after.get(package, [])}
        changes += [Change("removed", package, k) for k in old if k not in new]
        changes += [Change("added", package, k) for k in new if k not in old]
        for key in old:
            if key in new:
                names = sorted((set(old[key]) | set(new[key])) - quiet)
                fields = tuple(
                    (n, old[key].get(n), new[key].get(n)) for n in names if old[key].get(n) != new[key].get(n)
                )
                if fields:
                    changes.append(Change("changed", package, key, fields))
    return changes


def check_floors(before: Builds, after: Builds, *, read: set[str]) -> None:
    """Refuse an empty or shrunken result.

    ``read`` names the packages that were read. Raises GpuimgError naming each package below its floor.
    """
    problems = []
    for package in sorted(read):
        old, new = len(before.get(package, ())), len(after.get(package, ()))
        if new == 0 and old:
            problems.append(f"{package}: nothing found, {old} rows before")
        elif new < _FLOOR * old:
            problems.append(f"{package}: {new} rows, {old} before")
        for field in ("wheel_cuda", "sm", "pythons"):
            had = sum(1 for r in before.get(package, ()) if r.get(field))
            has = sum(1 for r in after.get(package, ()) if r.get(field))
            if has < _FLOOR * had:
                problems.append(f"{package}: {has} rows with {field}, {had} before")
    if problems:
        raise GpuimgError(
            "the scrape lost data and was not written:\n  " + "\n  ".join(problems),
            hint="run again later; --accept-loss writes it all the same",
        )


def dump(date: str, builds: Builds) -> str:
    """The stored form: sorted, one row a line."""
    parts = []
    for name in sorted(builds):
        rows = ",\n".join(json.dumps(r, ensure_ascii=False, sort_keys=True) for r in builds[name])
        parts.append(f"{json.dumps(name)}: [\n{rows}\n]")
    return f'{{"date": {json.dumps(date)},\n"builds": {{\n' + ",\n".join(parts) + "\n}}\n"


def write(path: Path, date: str, builds: Builds) -> None:
    """Write ``path`` whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(dump(date, builds), encoding="utf-8")
    temporary.replace(path)
