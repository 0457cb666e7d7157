"""Options that the matrix commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from gpuimg.cli.output import err

F = TypeVar("F", bound=Callable[..., Any])


def matrix_argument(function: F) -> F:
    return click.argument("matrix", type=click.Path(path_type=Path))(function)


def only_option(function: F) -> F:
    return click.option(
        "--only", multiple=True, metavar="PATTERN", help="Only cells whose id matches (repeatable, * allowed)."
    )(function)


def out_option(function: F) -> F:
    return click.option(
        "-o", "--out", "folder", type=click.Path(path_type=Path), default=Path("dockerfiles"), show_default=True,
        help="Folder for Dockerfiles and locks.",
    )(function)  # fmt: skip


def build_options(function: F) -> F:
    """--registry, --layers, --builder, --jobs."""
    for option in (
        click.option("--registry", metavar="HOST/PATH", help="Instead of the matrix file's registry."),
        click.option(
            "--layers", "producer", type=click.Choice(["stream", "buildkit"]), default="stream", show_default=True,
            help="How wheels become layers: directly, or all by BuildKit. The files are the same.",
        ),
        click.option("--builder", metavar="NAME", help="A buildx builder (remote, Kubernetes …)."),
        click.option("--jobs", type=click.IntRange(min=1), default=2, show_default=True, help="Cells built at once."),
    ):  # fmt: skip
        function = option(function)
    return function


def cards() -> tuple[Any, ...]:
    """Cards the engine reaches, for commands that work without an engine too."""
    from gpuimg.errors import EnvironmentFault
    from gpuimg.pipeline import cards_here

    try:
        return cards_here()
    except EnvironmentFault:
        return ()


def say(cell: str, text: str) -> None:
    """One line a step on stderr, readable in a CI log."""
    err.print(f"[dim]{cell}[/]  {text}", markup=True)
