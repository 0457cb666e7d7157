"""A new ``pypi.json`` from what was collected: floors that refuse a shrunken scrape, the diff, the atomic write."""

from __future__ import annotations

import datetime
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuimg.errors import BadInput, EnvironmentFault, GpuimgError
from gpuimg.harvest.collect import Cache, Collected, collect
from gpuimg.harvest.index import configured_index
from gpuimg.harvest.packages import BY_NAME, PACKAGES
from gpuimg.harvest.rows import make_rows

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


# Packages whose rows are joined from other packages' rows.
_JOINED = {"jax": ("jaxlib", "jax-cuda12-plugin", "jax-cuda13-plugin"), "vllm": ("torch",), "sglang": ("torch", "vllm")}


def read_builds(path: Path) -> dict[str, list[Row]]:
    """The ``builds`` of a ``pypi.json``.

    Raises BadInput when the file is not one.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        builds: dict[str, list[Row]] = content["builds"]
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise BadInput(f"{path}: not a pypi.json of gpuimg kb update ({type(error).__name__})") from error
    return builds


@dataclass(frozen=True)
class UpdateResult:
    """What an update read, cost and changed."""

    path: Path
    date: str
    seconds: float
    requests: int
    received: int
    """Bytes."""
    read: int
    cached: int
    failures: Mapping[str, str]
    changes: tuple[Change, ...]
    measured_torch: int
    """torch builds whose SM list was read from the wheel."""

    def to_json(self) -> dict[str, Any]:
        return {
            "path": str(self.path),
            "date": self.date,
            "seconds": round(self.seconds, 1),
            "requests": self.requests,
            "bytes": self.received,
            "files_read": self.read,
            "files_cached": self.cached,
            "failures": dict(self.failures),
            "torch_sm_lists_measured": self.measured_torch,
            "changes": [c.to_json() for c in self.changes],
        }


def update(
    *,
    before: Builds,
    cache: Path,
    out: Path,
    only: tuple[str, ...] = (),
    offline: bool = False,
    accept_loss: bool = False,
    threads: int = 4,
    say: Callable[[str], None] = lambda _: None,
) -> UpdateResult:
    """Read the index (or, offline, the cache) and write ``out/pypi.json``.

    Raises BadInput for an unknown package, GpuimgError below a floor, EnvironmentFault when nothing can be read.
    """
    for name in only:
        if name not in BY_NAME:
            raise BadInput.at(
                "--only", None, f"{name} is not a package that is read", allowed=sorted(BY_NAME), value=name
            )
    asked = set(only) or set(BY_NAME)
    needed = asked | {n for name in asked for n in _JOINED.get(name, ())}
    started = time.monotonic()
    found: Collected = collect(
        [s for s in PACKAGES if s.name in needed],
        Cache(cache),
        index_url=configured_index(),
        offline=offline,
        threads=threads,
        say=say,
    )
    rows = make_rows(found)
    if not rows:
        raise EnvironmentFault(
            "nothing could be read",
            hint="offline needs a cache from an earlier run" if offline else "is the index reachable?",
        )
    after = {**before, **{n: r for n, r in rows.items() if n in asked}}
    for name in asked - set(rows):
        after.pop(name, None)
    if not accept_loss:
        check_floors(before, after, read=asked)
    date = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    path = out / "pypi.json"
    write(path, date, after)
    traffic = found.traffic
    measured = sum(1 for r in after.get("torch", ()) if r.get("how", {}).get("sm") == "embedded")
    return UpdateResult(
        path=path,
        date=date,
        seconds=time.monotonic() - started,
        requests=traffic.requests,
        received=traffic.received,
        read=traffic.read,
        cached=traffic.cached,
        failures=found.failures,
        changes=tuple(diff(before, after)),
        measured_torch=measured,
    )
