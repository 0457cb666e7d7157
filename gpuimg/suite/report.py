"""Words for a person at a terminal: verdict first, then why, then what to do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TextIO

MARKS = {"pass": "ok  ", "fail": "FAIL", "error": "ERR ", "skip": "skip"}


def progress(value: dict[str, Any], stream: TextIO) -> None:
    """One line while the run goes on."""
    if value["line"] == "check":
        text = f"{MARKS[value['status']]} {value['id']:24} {value['seconds']:6.1f} s"
        if value["status"] != "pass" and value.get("reason"):
            text += f"  {' '.join(str(value['reason']).split())[:90]}"
        stream.write(text.encode(stream.encoding or "ascii", "replace").decode(stream.encoding or "ascii") + "\n")
        stream.flush()


def human(environment: dict[str, Any], checks: Iterable[dict[str, Any]], summary: dict[str, Any]) -> str:
    """The report: first line the verdict, then failures with their hints, then what was not made."""
    rows = list(checks)
    gpus = environment.get("gpus") or []
    where = ", ".join(str(g.get("name", "GPU")) for g in gpus) or "no GPU"
    what = environment.get("framework")
    version = (environment.get("frameworks") or {}).get(what, "")
    counts = summary["counts"]
    verdict = {"pass": "PASSED", "fail": "FAILED", "cannot-tell": "CANNOT TELL"}[summary["verdict"]]
    subject = f"{what} {version} on {where}" if what else where
    lines = [
        f"{verdict}: {subject}, profile {environment.get('profile')}: {counts['pass']} passed, "
        f"{counts['fail'] + counts['error']} failed, {counts['skip']} not made, {summary['seconds']:.0f} s"
    ]
    bad = [row for row in rows if row["status"] in ("fail", "error")]
    for row in bad:
        lines.append(
            f"  {row['id']}{'' if row['required'] else ' (optional)'}: {' '.join(str(row.get('reason')).split())}"
        )
        if row.get("hint"):
            lines.append(f"      do: {row['hint']}")
    if summary["verdict"] == "cannot-tell":
        lines.extend(f"  {reason}" for reason in summary["reasons"][:6])
    not_made = [row for row in rows if row["status"] == "skip"]
    if not_made:
        lines.append(f"  not made: {', '.join(row['id'] for row in not_made)}")
    return "\n".join(lines)
