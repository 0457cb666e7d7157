"""A report for a person at a terminal: the verdict first, then why, then what to do, then the table."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gpuimg.report.entry import Entry
from gpuimg.report.values import short
from gpuimg.report.words import Language, title_of, word

_COLOURS = {"pass": "green", "fail": "bold red", "error": "bold red", "skip": "yellow"}
_ANSWERS = {"certified": "bold green", "passed": "bold green", "failed": "bold red", "cannot-tell": "bold yellow"}


def verdict_line(entry: Entry, language: Language = "en") -> Text:
    """The first line: what, for what, how much."""
    counts = entry.counts
    line = Text(word(entry.answer, language).upper() if language == "en" else word(entry.answer, language))
    line.stylize(_ANSWERS[entry.answer])
    line.append(f"  {entry.name}", "bold")
    line.append(f"  {scope_text(entry, language)}")
    line.append(f"  {counts['pass']} {word('checks_passed', language)}")
    for status in ("fail", "error", "skip"):
        if counts[status]:
            line.append(f", {counts[status]} {word(status, language).lower()}", _COLOURS[status])
    return line


def scope_text(entry: Entry, language: Language = "en") -> str:
    """``training · NVIDIA H200 · driver 580`` or ``base · cpu``."""
    scope = entry.verdict.get("scope") or {}
    parts = [str(scope.get("profile") or entry.evidence.profile)]
    if scope.get("device") == "cuda":
        count = scope.get("gpu_count")
        names = ", ".join(scope.get("gpus") or [])
        parts += [f"{count}× {names}" if count and count > 1 else names]
        parts += [f"{word('driver', language)} {scope.get('driver_branch')}", str(scope.get("injection"))]
    elif scope.get("device"):
        parts.append("cpu")
    return " · ".join(parts)


def render(entry: Entry, language: Language = "en", *, verbose: bool = False) -> RenderableType:
    """The whole report of one entry. Skips and measurements of passed checks are shown in full with ``verbose``."""
    parts: list[RenderableType] = [verdict_line(entry, language)]
    for check in entry.troubles:
        line = Text("  ✗ ", "bold red")
        line.append(f"{check.id}: ", "bold")
        line.append(check.reason or check.status)
        parts.append(line)
        if check.hint:
            parts.append(Text(f"    → {check.hint}", "cyan"))
    told = {f"{c.id}: {c.reason or c.status}" for c in entry.troubles}
    for reason in entry.verdict.get("reasons") or []:
        if reason not in told:
            parts.append(Text(f"  · {reason}", "dim" if entry.verdict.get("certified") else ""))
    parts.append(checks_table(entry, language, verbose=verbose))
    return Group(*parts)


def checks_table(entry: Entry, language: Language = "en", *, verbose: bool = False) -> Table:
    """One row per check; those that have no meaning here only with ``verbose``."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for key in ("status", "check", "seconds", "measured"):
        table.add_column(word(key, language), justify="right" if key == "seconds" else "left", overflow="fold")
    for check in entry.evidence.checks:
        if check.status == "skip" and not check.applicable and not verbose:
            continue
        what = (
            check.reason if check.status != "pass" and check.reason else short(check.measured, 400 if verbose else 110)
        )
        name = Text(check.id)
        if verbose or language == "zh":
            name.append(f" {title_of(check.id, check.title, language)}", "dim")
        table.add_row(
            Text(word(check.status, language), _COLOURS[check.status]), name, f"{check.seconds:.1f}", Text(what or "")
        )
    return table
