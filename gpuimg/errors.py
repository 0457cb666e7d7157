"""Errors a user sees, each with the exit code of the command that ends with it.

Exit codes: 0 yes/done, 1 no, 2 bad input, 3 cannot tell, 4 environment.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class GpuimgError(Exception):
    """A message for the user. Never shown with a traceback.

    ``hint`` is what to do about it, on a line of its own.
    """

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class BadInput(GpuimgError):
    """What the user gave cannot be read or is not allowed.

    Build it with :meth:`at` wherever a file and line are known.
    """

    exit_code = 2

    @classmethod
    def at(
        cls,
        file: str,
        line: int | None,
        found: str,
        *,
        allowed: Iterable[str] = (),
        value: str | None = None,
    ) -> BadInput:
        """``file:line: found; allowed: a, b; did you mean 'a'?``

        ``value`` is compared with ``allowed`` for the nearest match.
        """
        where = f"{file}:{line}" if line is not None else file
        choices = list(allowed)
        text = f"{where}: {found}"
        if choices:
            text += f"; allowed: {', '.join(choices)}"
            near = nearest(value, choices) if value is not None else None
            if near is not None:
                text += f"; did you mean {near!r}?"
        return cls(text)


class CannotTell(GpuimgError):
    """Facts are missing, so neither yes nor no would be honest."""

    exit_code = 3


class EnvironmentFault(GpuimgError):
    """This machine or a service it needs is not in order: engine, registry, disk, network."""

    exit_code = 4


def nearest(value: str, choices: Iterable[str]) -> str | None:
    """The choice most like ``value``, or None when none is close."""
    found = difflib.get_close_matches(value.lower(), {c.lower(): c for c in choices}, n=1, cutoff=0.6)
    if not found:
        return None
    return next(c for c in choices if c.lower() == found[0])
