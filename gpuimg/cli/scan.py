"""``gpuimg scan DIR``: what a project needs, and what will not survive the move to Linux."""

from __future__ import annotations

from pathlib import Path

import click

from gpuimg.cli.output import json_option, print_json

COLOURS = {"error": "red", "warning": "yellow", "note": "blue"}
EXIT = {"ready": 0, "problems": 1, "unknown": 3}


@click.command(name="scan")
@click.argument("folder", metavar="DIR", default=".", type=click.Path(path_type=Path))
@click.option("--notes/--no-notes", default=True, help="Show notes too.")
@json_option
@click.pass_context
def command(context: click.Context, folder: Path, notes: bool, as_json: bool) -> None:
    """What a project needs (frameworks, versions, wheel_cuda, Python), and what in it will not run on Linux.

    Reads requirements, lock files, pyproject.toml, conda environments, Dockerfiles, sources and notebooks; runs nothing.
    Exit 0 ready, 1 problems, 3 nothing that can be judged.
    """
    from gpuimg.knowledge import load
    from gpuimg.project.moving import scan

    result = scan(folder, load())
    if as_json:
        print_json(result.to_json())
    else:
        shown = [f for f in result.findings if notes or f.severity != "note"]
        errors = sum(f.severity == "error" for f in result.findings)
        head = {
            "ready": "READY: nothing found that breaks on Linux",
            "problems": f"PROBLEMS: {errors} thing{'s' if errors != 1 else ''} will break on Linux",
            "unknown": "CANNOT TELL: no Python source and no list of packages here",
        }[result.verdict]
        click.secho(head, fg={"ready": "green", "problems": "red", "unknown": "yellow"}[result.verdict], bold=True)
        for one in result.frameworks:
            cuda = f", wheel_cuda {one.wheel_cuda}" if one.wheel_cuda else ""
            place = f"{one.file}:{one.line}" if one.line else one.file
            click.echo(f"  needs {one.name}{one.specifier}{cuda}  ({one.how}, {place})")
        if result.python:
            click.echo(f"  needs Python {result.python}")
        for finding in shown:
            place = f"{finding.file}:{finding.line}" if finding.line else finding.file
            click.echo(
                f"{click.style(finding.severity, fg=COLOURS[finding.severity], bold=True)} {place}  [{finding.rule}]"
            )
            click.echo(f"  {finding.message}")
            click.echo(f"  fix: {finding.fix}")
    context.exit(EXIT[result.verdict])
