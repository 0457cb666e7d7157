"""``gpuimg render``: Dockerfiles and one bake file."""

from __future__ import annotations

from pathlib import Path

import click

from gpuimg.cli.matrix_options import matrix_argument, only_option, out_option
from gpuimg.cli.output import json_option, out, print_json


@click.command("render")
@matrix_argument
@only_option
@out_option
@json_option
def command(matrix: Path, only: tuple[str, ...], folder: Path, as_json: bool) -> int:
    """Write OUT/<cell>/Dockerfile and one bake file; cells without a lock are locked first.

    They build with plain `docker buildx build` or `docker buildx bake`, without gpuimg.
    """
    from gpuimg.pipeline import Settings, lock_plan, read_job, refusal, render_plan, write_bake

    settings = Settings(matrix, only=only, out=folder)
    job = read_job(settings)
    pairs, refused = [], []
    for plan in job.plans:
        if refusal(plan):
            refused.append({"id": plan.cell.id, "why": refusal(plan)})
            continue
        pairs.append((plan, render_plan(plan, lock_plan(plan, job.matrix, settings), settings)))
    bake = write_bake(pairs, settings)
    if as_json:
        print_json(
            {
                "verdict": "ok" if not refused else "problems",
                "bake": str(bake),
                "rendered": [str(folder / rendered.cell) for _, rendered in pairs],
                "refused": refused,
            }
        )
    else:
        out.print(f"[bold]{len(pairs)} Dockerfiles[/] in {folder}, bake file {bake}")
        for row in refused:
            out.print(f"  {row['id']}: refused: {'; '.join(row['why'])}")
    return 1 if refused else 0
