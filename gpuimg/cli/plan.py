"""``gpuimg plan``: the cells of a matrix, what each becomes, and why some cannot be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from gpuimg.cli.matrix_options import cards, only_option
from gpuimg.cli.output import json_option, out, print_json


@click.command("plan")
@click.argument("matrix", type=click.Path(path_type=Path), required=False)
@only_option
@click.option("--schema", is_flag=True, help="Print the JSON Schema of matrix files, for editors.")
@json_option
def command(matrix: Path | None, only: tuple[str, ...], schema: bool, as_json: bool) -> int:
    """Cells of MATRIX with verdicts and estimated sizes. Nothing is fetched or built.

    Exit codes: 0 every cell can be built, 1 some cannot, 2 the file is wrong, 3 of some too little is known.
    """
    if schema:
        from gpuimg.matrix.schema import json_schema

        click.echo(json.dumps(json_schema(), indent=2))
        return 0
    if matrix is None:
        raise click.UsageError("give a MATRIX file, or --schema")
    from gpuimg.pipeline import Settings, advice, read_job, refusal

    job = read_job(Settings(matrix, only=only), cards)
    plans, excluded = job.plans, job.excluded
    impossible = [p for p in plans if refusal(p)]
    no = any(f.verdict == "no" for p in impossible for f in p.findings)
    code = 0 if not impossible else 1 if no else 3
    if as_json:
        print_json(
            {
                "verdict": {0: "ok", 1: "problems", 3: "unknown"}[code],
                "cells": [_row(p) for p in plans],
                "excluded": [{"id": c.id, "reason": reason} for c, reason in excluded],
                "with_gpu": [c.id for c in job.with_gpu],
                "notes": list(job.notes),
            }
        )
        return code
    from rich.table import Table

    total = sum(p.estimated_mib or 0 for p in plans if p not in impossible)
    good = len(plans) - len(impossible)
    out.print(f"[bold]{good} of {len(plans)} cells can be built[/], about {total / 1024:.1f} GiB of wheels")
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("cell", "verdict", "wheel_cuda", "cuDNN", "driver", "MiB"):
        table.add_column(name, no_wrap=True)
    for p in plans:
        table.add_row(
            p.cell.id, p.verdict, p.wheel_cuda or "-", p.cudnn or "-", f"≥ {p.min_driver}" if p.min_driver else "-",
            str(p.estimated_mib or "?"),
        )  # fmt: skip
    out.print(table, width=max(out.width, out.measure(table).maximum), crop=False)
    for p in plans:
        for finding in p.findings:
            if finding.verdict in ("no", "warn") or (finding.verdict == "unknown" and p in impossible):
                out.print(f"  {p.cell.id}: {finding.verdict}: {finding.evidence}")
        if p.instead:
            out.print(f"    {advice(p)}")
    for cell, reason in excluded:
        out.print(f"  {cell.id}: excluded: {reason}", style="dim")
    for cell in job.with_gpu:
        out.print(f"  {cell.id}: only where the engine reaches a GPU; none is reached here", style="dim")
    for note in job.notes:
        out.print(f"  {note}", style="yellow", markup=False)
    return code


def _row(plan: Any) -> dict[str, Any]:
    return {
        "id": plan.cell.id,
        "verdict": plan.verdict,
        "framework": plan.cell.framework,
        "version": plan.version,
        "wheel_cuda": plan.wheel_cuda,
        "cudnn": plan.cudnn,
        "nccl": plan.nccl,
        "python": plan.python,
        "os": plan.cell.os,
        "index_url": plan.index_url,
        "requirements": list(plan.requirements),
        "sm": list(plan.sm),
        "min_driver": plan.min_driver,
        "estimated_mib": plan.estimated_mib,
        "findings": [f.to_json() for f in plan.findings],
        "instead": list(plan.instead),
    }
