"""What every command prints with: one JSON document, or text for a person."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

import click
from rich.console import Console

F = TypeVar("F", bound=Callable[..., Any])

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)


def json_option(function: F) -> F:
    """``--json``: one document on stdout; logs go to stderr."""
    return click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")(function)


def print_json(document: dict[str, Any]) -> None:
    """One JSON document on stdout, non-ASCII text kept readable."""
    click.echo(json.dumps(document, ensure_ascii=False, indent=2))
