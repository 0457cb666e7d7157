"""``gpuimg lock``: pin every wheel of a matrix by hash."""

from __future__ import annotations

from pathlib import Path

import click

from gpuimg.cli.matrix_options import matrix_argument, only_option, out_option
from gpuimg.cli.output import json_option, out, print_json


@click.command("lock")
@matrix_argument
@only_option
@out_option
@click.option("--check", is_flag=True, help="Change nothing; exit 1 when a lock is missing or for other requirements.")
@json_option
def command(matrix: Path, only: tuple[str, ...], folder: Path, check: bool, as_json: bool) -> int:
    """Resolve every cell of MATRIX once and pin its wheels with hashes in OUT/<cell>/pylock.toml (PEP 751)."""
    from gpuimg.layers.lockfile import total_bytes
    from gpuimg.pipeline import Settings, lock_is_current, lock_plan, read_job, refusal

    settings = Settings(matrix, only=only, out=folder, relock=not check)
    job = read_job(settings)
    rows, stale = [], []
    for plan in job.plans:
        if refusal(plan):
            continue
        if check:
            if not lock_is_current(plan, settings):
                stale.append(plan.cell.id)
            continue
        wheels = lock_plan(plan, job.matrix, settings)
        rows.append({"id": plan.cell.id, "wheels": len(wheels), "bytes": total_bytes(wheels)})
    if as_json:
        print_json({"verdict": "stale" if stale else "ok", "stale": stale, "locked": rows})
    elif check:
        out.print(f"[bold]{len(stale)} locks are missing or stale[/]" if stale else "[bold]all locks are current[/]")
        for name in stale:
            out.print(f"  {name}")
        if stale:
            out.print(f"gpuimg lock {matrix} renews them")
    else:
        for row in rows:
            out.print(f"{row['id']}: {row['wheels']} wheels, {int(str(row['bytes'])) / 1e6:.0f} MB")
    return 1 if stale else 0
