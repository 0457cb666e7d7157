"""Curves as inline SVG: no script, no outside file, readable in print. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from gpuimg.nouns import Evidence
from gpuimg.report.words import Language, word

WIDTH, HEIGHT = 640, 150
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 8, 8, 22
_COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b", "#7f7f7f")
_POINTS = 400


@dataclass(frozen=True)
class Curve:
    """One chart: several lines over the same time axis, which starts at 0 s with one value every ``period`` s."""

    title: str
    lines: tuple[tuple[str, tuple[float, ...]], ...]
    period: float


def curves_of(evidence: Evidence, language: Language = "en") -> list[Curve]:
    """The host's own samples of the GPUs, and every series that a check measured.

    A series of a check is a list of at least eight numbers under ``measured``, or ``{"period_s", "series": {name:
    [...]}}``; anything else is not drawn.
    """
    out: list[Curve] = []
    watch = evidence.host.get("watch")
    if isinstance(watch, dict) and watch.get("gpus"):
        period = float(watch.get("period_s") or 0.2)
        for key, label in (("utilisation_percent", "utilisation"), ("memory_mib", "memory")):
            lines = tuple(
                (f"GPU {g.get('index')}", tuple(map(float, g[key]))) for g in watch["gpus"] if len(g.get(key) or []) > 1
            )
            if lines:
                out.append(Curve(f"{word(label, language)} ({word('watched', language)})", lines, period))
    for check in evidence.checks:
        out += _check_curves(check.id, check.measured)
    return out


def svg(curve: Curve) -> str:
    """The chart as an ``<svg>`` element."""
    values = [v for _, line in curve.lines for v in line]
    low, high = min(0.0, *values), max(values)
    high = high if high > low else low + 1.0
    longest = max(len(line) for _, line in curve.lines)
    seconds = max((longest - 1) * curve.period, 1e-9)
    width, height = WIDTH - _LEFT - _RIGHT, HEIGHT - _TOP - _BOTTOM

    def y(value: float) -> float:
        return _TOP + height * (1 - (value - low) / (high - low))

    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(curve.title, quote=True)}">',
        f'<rect x="{_LEFT}" y="{_TOP}" width="{width}" height="{height}" class="frame"/>',
    ]
    for value in (low, (low + high) / 2, high):
        parts.append(f'<text x="{_LEFT - 4}" y="{y(value) + 4:.1f}" class="axis end">{value:.4g}</text>')
        parts.append(f'<line x1="{_LEFT}" x2="{_LEFT + width}" y1="{y(value):.1f}" y2="{y(value):.1f}" class="grid"/>')
    for share, anchor in ((0.0, "start"), (0.5, "middle"), (1.0, "end")):
        x = _LEFT + width * share
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - 6}" class="axis {anchor}">{seconds * share:.3g} s</text>')
    for number, (name, line) in enumerate(curve.lines):
        shown = thinned(line, _POINTS)
        step = width * ((len(line) - 1) * curve.period / seconds) / max(len(shown) - 1, 1)
        points = " ".join(f"{_LEFT + step * i:.1f},{y(v):.1f}" for i, v in enumerate(shown))
        colour = _COLOURS[number % len(_COLOURS)]
        parts.append(f'<polyline points="{points}" stroke="{colour}"><title>{escape(name)}</title></polyline>')
    parts.append("</svg>")
    return "".join(parts)


def thinned(line: Sequence[float], count: int) -> list[float]:
    """At most about ``count`` values; of each stretch its lowest and highest stay, so that no dip disappears."""
    if len(line) <= count:
        return list(line)
    size = -(-2 * len(line) // count)
    out: list[float] = []
    for start in range(0, len(line), size):
        stretch = line[start : start + size]
        low, high = min(stretch), max(stretch)
        first_low = list(stretch).index(low) <= list(stretch).index(high)
        out += [low, high] if first_low else [high, low]
    return out


def _check_curves(check_id: str, measured: dict[str, Any]) -> list[Curve]:
    out = []
    for key, value in measured.items():
        if isinstance(value, dict) and isinstance(value.get("series"), dict):
            period = value.get("period_s") or 0.2
            for name, line in value["series"].items():
                if _numbers(line):
                    out.append(Curve(f"{check_id}: {name}", ((str(name), tuple(map(float, line))),), float(period)))
        elif _numbers(value):
            out.append(Curve(f"{check_id}: {key}", ((str(key), tuple(map(float, value))),), 1.0))
    return out


def _numbers(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) >= 8
        and all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in value)
    )
