"""Measurements as short text for tables. Pure."""

from __future__ import annotations

from typing import Any

_LONGEST = 160


def short(values: dict[str, Any], limit: int = _LONGEST) -> str:
    """``name=value`` pairs, nested ones flattened with dots, long lists as their length; cut at ``limit``."""
    parts = [f"{k}={_one(v)}" for k, v in flat(values) if v not in (None, "", [], {})]
    text = ", ".join(parts)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def flat(values: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Pairs of dotted name and value."""
    out: list[tuple[str, Any]] = []
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            out += flat(value, f"{name}.")
        else:
            out.append((name, value))
    return out


def _one(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        if len(value) > 6:
            return f"[{len(value)} values]"
        return "[" + " ".join(_one(v) for v in value) + "]"
    if isinstance(value, dict):
        return "{…}"
    text = str(value).replace("\n", " ")
    if text.startswith("sha256:") or (len(text) == 64 and all(c in "0123456789abcdef" for c in text)):
        return text.removeprefix("sha256:")[:12]
    return text
