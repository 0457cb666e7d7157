"""``gpuimg explain``: an error message or log → cause, fix, how sure."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from gpuimg.cli.output import json_option, out, print_json
from gpuimg.errors import BadInput

_SURE = {"high": "[bold green]sure[/]", "medium": "[yellow]likely[/]", "low": "[dim]possible[/]"}


@click.command("explain")
@click.argument("source", nargs=-1, metavar="[FILE|-|TEXT]…")
@json_option
def command(source: tuple[str, ...], as_json: bool) -> int:
    """What an error message or log means: the cause, the fix, and how sure that is.

    Give a FILE, - (or nothing) for standard input, or the message itself.

    Exit codes: 0 recognised, 3 nothing recognised.
    """
    from gpuimg.explain import explain

    text = _text(source)
    causes = explain(text)
    if as_json:
        print_json({"verdict": "known" if causes else "unknown", "causes": [cause.to_json() for cause in causes]})
        return 0 if causes else 3
    if not causes:
        out.print("[bold]not recognised[/]: no message in it that is in the catalogue")
        out.print("  give more of the log: the lines before the last error, and nvidia-smi's output")
        return 3
    for place, cause in enumerate(causes):
        out.print(f"{_SURE[cause.confidence]} ", end="")
        out.print(cause.cause, markup=False, style="bold" if place == 0 else None)
        out.print(f"  seen: {cause.evidence}", markup=False, style="dim")
        out.print(f"  do:   {cause.fix}", markup=False)
        out.print(f"  {cause.rule}, {cause.source}", markup=False, style="dim")
    return 0


def _text(source: tuple[str, ...]) -> str:
    """The text given; BadInput when there is none."""
    from gpuimg.cli.host import read_text

    if not source and sys.stdin.isatty():
        raise BadInput("no text: give FILE, - for standard input, or the message itself")
    if len(source) <= 1:
        only = source[0] if source else "-"
        if only == "-":
            return read_text("-")
        try:
            is_file = Path(only).exists()
        except (OSError, ValueError):  # too long for a file name, or with a NUL: a message
            is_file = False
        if is_file:
            return read_text(only)
        if " " not in only and ("/" in only or only.endswith((".txt", ".log", ".out", ".err"))):
            raise BadInput(f"{only}: no such file")
        return only
    return " ".join(source)
