"""What every command prints with: one JSON document, or text for a person."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from rich.console import Console

    out: Console
    err: Console

F = TypeVar("F", bound=Callable[..., Any])


def __getattr__(name: str) -> Any:
    """``out`` and ``err``, made when first asked for: ``--json`` does not pay for rich."""
    if name not in {"out", "err"}:
        raise AttributeError(name)
    from rich.console import Console

    made = Console(stderr=name == "err", highlight=False, soft_wrap=True)
    globals()[name] = made
    return made


def json_option(function: F) -> F:
    """``--json``: one document on stdout; logs go to stderr."""
    return click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")(function)


def print_json(document: dict[str, Any]) -> None:
    """One JSON document on stdout, non-ASCII text kept readable."""
    click.echo(json.dumps(document, ensure_ascii=False, indent=2))
