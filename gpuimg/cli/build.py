"""``gpuimg build``: images of a matrix, in the registry, not yet verified."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from gpuimg.cli.matrix_options import build_options, matrix_argument, only_option, out_option, say
from gpuimg.cli.output import json_option, out, print_json


@click.command("build")
@matrix_argument
@only_option
@out_option
@build_options
@json_option
def command(matrix: Path, only: tuple[str, ...], folder: Path, as_json: bool, **options: Any) -> int:
    """Build the images of MATRIX into the registry, under staging tags. `gpuimg certify` does this and verifies them.

    Exit codes: 0 all built, 1 a cell was refused or failed, 2 bad input, 4 no engine or registry.
    """
    from gpuimg.engine.build import require_buildx
    from gpuimg.pipeline import Settings, build_all

    require_buildx()
    settings = Settings(matrix, only=only, out=folder, **options)
    rows = build_all(settings, say)
    failed = [row for row in rows if "error" in row]
    if as_json:
        print_json({"verdict": "ok" if not failed else "problems", "images": rows})
        return 1 if failed else 0
    out.print(f"[bold]{len(rows) - len(failed)} of {len(rows)} images built[/]")
    for row in rows:
        if "error" in row:
            out.print(f"  [bold red]✗[/] {row['id']}: {row['error']}", markup=True)
            if row.get("hint"):
                out.print(f"      {row['hint']}")
        else:
            out.print(f"  {row['reference']}  {row['seconds']} s")
    return 1 if failed else 0
