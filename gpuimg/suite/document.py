"""The document a run writes: environment line, one line per check, summary line; and how a reader trusts it.

Every line is one JSON object with ``"line": "environment" | "check" | "summary"``. The summary carries the nonce and an
HMAC under it over all lines before, so a reader that chose the nonce knows that nothing was cut, added or swapped.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .framing import dumps

SCHEMA = "gpuimg-suite/1"


class BadDocument(ValueError):
    """The text is not a whole, untouched document of this run; the message says what is wrong."""


@dataclass(frozen=True)
class Document:
    """A read document. ``checks`` are the raw check lines, in running order."""

    environment: dict[str, Any]
    checks: tuple[dict[str, Any], ...]
    summary: dict[str, Any]


def seal(nonce: str, lines: Sequence[str]) -> str:
    """HMAC-SHA256 under the nonce over the lines (without their newlines), hex."""
    return hmac.new(nonce.encode(), "\n".join(lines).encode(), hashlib.sha256).hexdigest()


def write_line(kind: str, value: dict[str, Any]) -> str:
    """One line of the document, without newline."""
    return dumps({"line": kind, **value})


def read_document(text: str, nonce: str | None = None) -> Document:
    """Read what a run wrote; lines that are not ours (a banner of the image) are passed over.

    ``nonce``: the one handed to the run; when given, it must be echoed and the seal must hold.
    Raises BadDocument when there is no environment or summary line, the nonce is another, or the seal is broken.
    """
    lines: list[str] = []
    environment: dict[str, Any] | None = None
    summary: dict[str, Any] | None = None
    checks: list[dict[str, Any]] = []
    for raw in text.splitlines():
        if not raw.startswith("{"):
            continue
        try:
            value = json.loads(raw)
        except ValueError:
            continue
        kind = value.get("line") if isinstance(value, dict) else None
        if kind == "environment" and value.get("schema") == SCHEMA:
            if nonce is not None and value.get("nonce") != nonce:
                continue
            environment, checks, lines, summary = value, [], [raw], None
        elif environment is not None and summary is None and kind == "check":
            checks.append(value)
            lines.append(raw)
        elif environment is not None and summary is None and kind == "summary":
            summary = value
            if not hmac.compare_digest(str(value.get("seal")), seal(nonce or environment["nonce"], lines)):
                raise BadDocument("the seal does not fit the lines: something was added, cut or changed")
    if environment is None:
        raise BadDocument("no environment line" + (" with this nonce" if nonce is not None else ""))
    if summary is None:
        raise BadDocument(f"no summary line: the run was cut off after {len(checks)} checks")
    if len({c.get("id") for c in checks}) != len(checks):
        raise BadDocument("a check is reported twice")
    return Document(environment, tuple(checks), summary)
