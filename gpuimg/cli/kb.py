"""``gpuimg kb``: what the knowledge base holds, where it came from, and how to bring it up to date."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import click

from gpuimg.cli.output import err, json_option, out, print_json
from gpuimg.errors import CannotTell, nearest


@click.group("kb", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """The knowledge base: show, sources, diff, update."""


@command.command("show")
@click.argument("name")
@click.argument("version", required=False)
@click.option("--machine", type=click.Choice(["x86_64", "aarch64"]), help="Only builds for this machine type.")
@json_option
def show(name: str, version: str | None, machine: str | None, as_json: bool) -> int:
    """Builds of NAME (torch, tensorflow, vllm …), or the facts of a card, base tag or OS of that name."""
    from dataclasses import asdict

    from gpuimg.knowledge import load

    base = load()
    builds = base.builds(name, version, machine=machine)
    if builds:
        rows = [asdict(b) for b in builds]
        if as_json:
            print_json({"name": name, "date": base.date, "builds": rows})
            return 0
        known = len(base.versions(name))
        out.print(f"{name}: {len(rows)} builds of {known if version is None else 1} versions; data of {base.date}")
        _print_builds(rows, detailed=version is not None)
        return 0
    if version is None:
        found = _lookup(name)
        if found is not None:
            if as_json:
                print_json({"name": name, "date": base.date, **found})
            else:
                kind, facts = next(iter(found.items()))
                out.print(f"{kind}: {name}; data of {base.date}")
                for key, value in facts.items():
                    if value not in (None, (), [], ""):
                        out.print(f"  {key}: {value}", markup=False)
            return 0
    every = (*base.frameworks(), *base.companion_names())
    if name in every or name in base.aliases:
        versions = base.versions(name)
        near = nearest(version or "", versions)
        newest = f"newest known {versions[-1]} (data of {base.date})"
        raise CannotTell(
            f"{name} {version}: not known; {newest}", hint=f"did you mean {near}?" if near else "gpuimg kb update"
        )
    cards = [n for g in base.gpus for n in (g.name, *g.aliases)]
    near = nearest(name, [*every, *base.aliases, *cards])
    raise CannotTell(f"{name}: not known", hint=f"did you mean {near}?" if near else None)


def _lookup(name: str) -> dict[str, Any] | None:
    """A card, OS, base tag or image by its name."""
    from dataclasses import asdict

    from gpuimg.knowledge import load

    base = load()
    wanted = name.strip().lower()
    for gpu in base.gpus:
        if wanted in (gpu.name.lower(), *(a.lower() for a in gpu.aliases)):
            return {"gpu": asdict(gpu)}
    release = base.os(name)
    if release is not None:
        return {"os": asdict(release)}
    tag = wanted.removeprefix("docker.io/")
    for row in base.base_tags:
        if tag in (row.tag, f"{row.repository}:{row.tag}"):
            return {"base": asdict(row)}
    for image in base.images:
        if tag == f"{image.repository}:{image.tag}":
            return {"image": asdict(image)}
    return None


def _targets(row: dict[str, Any]) -> str:
    if row["sm"]:
        return " ".join(t.removeprefix("sm_").replace("compute_", "PTX") for t in row["sm"])
    return "" if row["device"] == "cpu" else "not measured"


def _print_builds(rows: list[dict[str, Any]], *, detailed: bool) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("version", "machine", "build", "wheel_cuda", "cuDNN", "Python", "code for", "how"):
        table.add_column(column)
    for row in rows:
        label = row["extra"] or row["local"] or ("default" if row["default"] else row["index"])
        cuda = row["wheel_cuda"] or ("none: CPU" if row["device"] == "cpu" else "not known")
        pythons: list[str] = list(row["pythons"] or ())
        span = " to ".join(dict.fromkeys([*pythons[:1], *pythons[-1:]])) or "not known"
        table.add_row(
            row["version"],
            row["machine"],
            label,
            cuda,
            row["cudnn"] or "",
            span,
            _targets(row),
            row["how"].get("wheel_cuda", ""),
        )
    out.print(table)
    if not detailed:
        return
    for row in rows:
        label = row["extra"] or row["local"] or row["machine"]
        out.print(f"{label}: {row['source']}", markup=False)
        if row["index_url"]:
            out.print(f"  index: {row['index_url']}", markup=False)
        if row["requires"]:
            out.print(f"  requires: {', '.join(row['requires'])}", markup=False)
        for note in row["notes"]:
            out.print(f"  note: {note}", markup=False)


@command.command("sources")
@click.option("--conflicts", is_flag=True, help="Where sources disagree, and who is right.")
@json_option
def sources(conflicts: bool, as_json: bool) -> int:
    """Where the facts come from, how the build rows were obtained, and where sources disagree."""
    from dataclasses import asdict

    from gpuimg.knowledge import load

    base = load()
    counted: Counter[str] = Counter()
    for name in (*base.frameworks(), *base.companion_names()):
        for build in base.builds(name):
            counted[build.how.get("wheel_cuda", "no value")] += 1
    if as_json:
        print_json(
            {
                "date": base.date,
                "files": {
                    n: str(base.path_of(n)) for n in ("pypi.json", "builds.json", "hardware.json", "images.json")
                },
                "wheel_cuda_obtained": dict(counted),
                "sources": dict(base.sources),
                "conflicts": [asdict(c) for c in base.conflicts],
            }
        )
        return 0
    out.print(f"wheels read on {base.date}; {sum(counted.values())} build rows, wheel_cuda obtained: {dict(counted)}")
    if conflicts:
        for row in base.conflicts:
            out.print(f"{row.subject} {row.versions} ({row.state}): {row.right}", markup=False)
            for who, what in row.says.items():
                out.print(f"  {who}: {what}", markup=False)
            out.print(f"  {row.why}", markup=False)
        return 0
    for key, where in sorted(base.sources.items()):
        out.print(f"{key}: {where}", markup=False)
    out.print(f"{len(base.conflicts)} places where sources disagree: --conflicts lists them")
    return 0


@command.command("diff")
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--only", multiple=True, metavar="NAME", help="Only this package (repeatable).")
@json_option
def diff(file: Path | None, only: tuple[str, ...], as_json: bool) -> int:
    """What FILE (a pypi.json; without it, your own updated one) changes against the shipped data."""
    from gpuimg.harvest import update as harvest
    from gpuimg.knowledge.base import DATA, date_of, user_folder

    file = file or user_folder() / "pypi.json"
    changes = harvest.diff(
        harvest.read_builds(DATA / "pypi.json"), harvest.read_builds(file), only=set(only) if only else None
    )
    if as_json:
        print_json({"file": str(file), "date": date_of(file), "changes": [c.to_json() for c in changes]})
        return 0
    _print_changes(changes)
    return 0


def _print_changes(changes: Any, limit: int | None = None) -> None:
    counted = Counter(c.kind for c in changes)
    out.print(f"{counted['added']} rows added, {counted['removed']} removed, {counted['changed']} changed")
    for change in list(changes)[:limit]:
        out.print(f"  {change.kind} {change.package} {change.key}", markup=False)
        for field, before, after in change.fields:
            out.print(f"    {field}: {_short(before)} → {_short(after)}", markup=False)
    if limit is not None and len(changes) > limit:
        out.print(f"  … and {len(changes) - limit} more: gpuimg kb diff")


def _short(value: object) -> str:
    if value is None:
        return "none"
    return " ".join(str(v) for v in value) if isinstance(value, list | tuple) else str(value)


@command.command("update")
@click.option("--only", multiple=True, metavar="NAME", help="Read only this package (repeatable).")
@click.option("--out", "folder", type=click.Path(file_okay=False, path_type=Path), help="Folder to write pypi.json to.")
@click.option("--offline", is_flag=True, help="Use what earlier runs cached; no network.")
@click.option("--accept-loss", is_flag=True, help="Write even when packages lost rows.")
@click.option("--threads", type=click.IntRange(1, 8), default=4, show_default=True, help="Wheels read at once.")
@json_option
def update(
    only: tuple[str, ...], folder: Path | None, offline: bool, accept_loss: bool, threads: int, as_json: bool
) -> int:
    """Read the published wheels again, by range requests, and write a new pypi.json. The index is the one pip uses.

    Without --out it goes to your own data folder and is used from then on. A stopped run goes on where it was.
    """
    import platformdirs

    from gpuimg.harvest import update as harvest
    from gpuimg.knowledge.base import DATA, user_folder

    cache = Path(platformdirs.user_cache_dir("gpuimg")) / "wheels"
    result = harvest.update(
        before=harvest.read_builds(DATA / "pypi.json"),
        cache=cache,
        out=folder or user_folder(),
        only=only,
        offline=offline,
        accept_loss=accept_loss,
        threads=threads,
        say=lambda text: err.print(text, markup=False),
    )
    if as_json:
        print_json(result.to_json())
        return 0
    out.print(f"wrote {result.path}: data of {result.date}", markup=False)
    out.print(
        f"  {result.read} files read and {result.cached} from the cache in {result.seconds:.0f} s: "
        f"{result.requests} requests, {result.received / 1e6:.0f} MB; "
        f"{result.measured_torch} SM lists of torch measured"
    )
    for name, why in result.failures.items():
        out.print(f"  not read: {name}: {why}", markup=False)
    _print_changes(result.changes, limit=40)
    return 0
