"""TOML with line numbers good enough to point at: values parsed by the standard parser, lines found by text."""

from __future__ import annotations

import re
import sys
from typing import Any

from gpuimg.errors import BadInput

if sys.version_info >= (3, 11):
    import tomllib
else:  # pragma: no cover - depends on the interpreter
    import tomli as tomllib


def parse_toml(text: str, file: str) -> dict[str, Any]:
    """The document. Raises BadInput with file and line for what is no TOML."""
    try:
        found: dict[str, Any] = tomllib.loads(text)
        return found
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"at line (\d+)", str(error))
        raise BadInput.at(file, int(line[1]) if line else None, f"is not TOML: {error}") from error
    except (RecursionError, ValueError) as error:
        raise BadInput.at(file, None, f"is not TOML: {error}") from error


class Lines:
    """Finds the line of a text; each call goes on after the last hit of the same text, so repeats keep their order."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._next: dict[str, int] = {}

    def find(self, needle: str, *, after: int = 0) -> int | None:
        """1-based line of the next occurrence, None when there is none."""
        start = max(self._next.get(needle, 0), after)
        at = self._text.find(needle, start)
        if at < 0:
            at = self._text.find(needle)
        if at < 0:
            return None
        self._next[needle] = at + len(needle)
        return self._text.count("\n", 0, at) + 1

    def offset(self, needle: str) -> int:
        """Character offset of a text (a table header), 0 when it is not there."""
        return max(self._text.find(needle), 0)


def as_dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
