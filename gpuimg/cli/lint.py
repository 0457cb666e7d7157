"""``gpuimg lint FILE…``: what in these files will break or bloat, with line and fix."""

from __future__ import annotations

from pathlib import Path

import click

from gpuimg.cli.output import json_option, print_json
from gpuimg.nouns import LintFinding

COLOURS = {"error": "red", "warning": "yellow", "note": "blue"}


@click.command(name="lint")
@click.argument("files", nargs=-1, required=True, metavar="FILE…", type=click.Path(path_type=Path))
@click.option("--python", "python", metavar="V", help="Python the packages go to, '3.11'.")
@click.option("--gpu", "gpus", multiple=True, metavar="NAME", help="Card it must run on (repeatable).")
@click.option("--driver", metavar="V", help="Driver of the host, '550.54.14'.")
@click.option("--base", metavar="REF", help="Base image, instead of the one the file names.")
@click.option("--os", "os_name", metavar="ID", help="Operating system of the base: ubuntu22.04, debian12 …")
@click.option("--glibc", metavar="V", help="glibc of the base.")
@click.option("--machine", type=click.Choice(["x86_64", "aarch64"]), default="x86_64", show_default=True)
@click.option("--quiet", "-q", is_flag=True, help="Leave notes out.")
@json_option
@click.pass_context
def command(
    context: click.Context,
    files: tuple[Path, ...],
    python: str | None,
    gpus: tuple[str, ...],
    driver: str | None,
    base: str | None,
    os_name: str | None,
    glibc: str | None,
    machine: str,
    quiet: bool,
    as_json: bool,
) -> None:
    """What in these files will break, may break or bloats, with line and fix.

    Reads Dockerfiles, compose files, requirements.txt, environment.yml, pyproject.toml, lock files and matrix files;
    the kind is found by name and content. Exit 1 only for errors.
    """
    from gpuimg.knowledge import load
    from gpuimg.lint import Options, lint_files

    options = Options(_python(python), gpus, driver, base, os_name, glibc, machine)
    found = lint_files(files, load(), options)
    if quiet:
        found = tuple(f for f in found if f.severity != "note")
    errors = sum(f.severity == "error" for f in found)
    if as_json:
        print_json({"verdict": "problems" if errors else "ok", "findings": [f.to_json() for f in found]})
    else:
        _print(found, files)
    context.exit(1 if errors else 0)


def _python(text: str | None) -> str | None:
    """'3.11', '3.11.4', 'py311', 'cp311', 'python3.11' → '3.11'. Raises BadInput for anything else."""
    if text is None:
        return None
    import re

    from gpuimg.errors import BadInput

    found = re.fullmatch(r"(?:python|py|cp)?-?3\.?(\d{1,2})(?:\.\d+)?", text.strip().lower())
    if not found:
        raise BadInput(f"--python {text!r} is no version of Python; allowed: 3.8 to 3.15, like 3.11")
    return f"3.{int(found[1])}"


def _print(found: tuple[LintFinding, ...], files: tuple[Path, ...]) -> None:
    counts = {s: sum(f.severity == s for f in found) for s in ("error", "warning", "note")}
    parts = [f"{n} {s}{'s' if n != 1 else ''}" for s, n in counts.items() if n]
    colour = "red" if counts["error"] else "yellow" if counts["warning"] else "green"
    head = "PROBLEMS: " if counts["error"] else "OK: " if counts["warning"] or counts["note"] else "OK"
    click.secho(head + ", ".join(parts), fg=colour, bold=True)
    for one in found:
        place = f"{one.file}:{one.line}" if one.line else one.file
        click.echo(f"{click.style(one.severity, fg=COLOURS[one.severity], bold=True)} {place}  [{one.rule}]")
        click.echo(f"  {one.message}")
        click.echo(f"  fix: {one.fix}")
