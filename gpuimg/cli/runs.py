"""``gpuimg runs``: earlier runs in this folder and how they ended."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import click

from gpuimg.cli.output import json_option, out, print_json
from gpuimg.errors import BadInput, nearest

RUNS = Path(".gpuimg") / "runs"


@click.command("runs")
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="How many, newest first.")
@json_option
def command(limit: int, as_json: bool) -> int:
    """Earlier runs under .gpuimg/runs, newest first. `gpuimg report RUN` shows one."""
    rows = [describe(path) for path in list_runs()[:limit]]
    if as_json:
        print_json({"runs": rows})
        return 0
    if not rows:
        out.print(f"no runs under {RUNS}")
        out.print("  gpuimg certify MATRIX makes one")
        return 0
    width = max(len(row["id"]) for row in rows)
    for row in rows:
        answers = ", ".join(f"{n} {answer}" for answer, n in sorted(row["answers"].items())) or "nothing finished"
        out.print(f"{row['id']:{width}}  {row['changed']}  {answers}", markup=False)
        for trouble in row.get("unreadable", []):
            out.print(f"  unreadable: {trouble}", style="yellow", markup=False)
    return 0


def list_runs() -> list[Path]:
    """Folders of runs, newest first."""
    if not RUNS.is_dir():
        return []
    return sorted((p for p in RUNS.iterdir() if p.is_dir()), key=lambda p: (p.stat().st_mtime, p.name), reverse=True)


def describe(path: Path) -> dict[str, Any]:
    """Id, time and how many subjects ended how; a folder that cannot be read says so instead of hiding the others."""
    from gpuimg.report.entry import EVIDENCE_FILE, read_entry

    answers: dict[str, int] = {}
    broken: list[str] = []
    files = sorted(path.rglob(EVIDENCE_FILE))
    for file in files:
        try:
            answer = str(read_entry(file).answer)
        except BadInput as error:
            broken.append(error.message)
            continue
        answers[answer] = answers.get(answer, 0) + 1
    changed = datetime.fromtimestamp(path.stat().st_mtime, timezone.utc).strftime("%Y-%m-%d %H:%M:%SZ")
    row: dict[str, Any] = {
        "id": path.name, "path": str(path), "changed": changed, "subjects": len(files), "answers": answers,
    }  # fmt: skip
    if broken:
        row["unreadable"] = broken
    state = path / "state.json"
    if state.exists():
        try:
            row["state"] = json.loads(state.read_text("utf-8"))
        except ValueError:
            row.setdefault("unreadable", []).append(f"{state}: not JSON")
    return row


def find_run(name: str | None) -> Path:
    """A run by id, folder or file; the newest one without a name.

    Raises:
        BadInput: none like that; the nearest id is named.
    """
    if name is None:
        for path in list_runs():
            if any(path.rglob("evidence.json")):
                return path
        raise BadInput(f"no runs with evidence under {RUNS}", hint="name a folder or an evidence file")
    if (RUNS / name).exists():
        return RUNS / name
    if Path(name).exists():
        return Path(name)
    near = nearest(name, [p.name for p in list_runs()])
    raise BadInput(f"no run {name!r} under {RUNS}" + (f"; did you mean {near!r}?" if near else ""))
