"""A fit answer as text: the verdict, why, what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuimg.cli.output import out

if TYPE_CHECKING:
    from gpuimg.knowledge.fit import Answer

WORDS = {
    "fits": ("✓ fits", "bold green"),
    "fits-with-compat": ("✓ fits, by compatibility", "bold green"),
    "fits-via-ptx": ("✓ fits, but compiles at the first start (PTX)", "bold yellow"),
    "does-not-fit": ("✗ does not fit", "bold red"),
    "unknown": ("? cannot tell", "bold yellow"),
}
MARKS = {"no": ("✗", "red"), "unknown": ("?", "yellow"), "warn": ("!", "yellow"), "yes": ("✓", "green")}


def show(answer: Answer) -> None:
    """Verdict line, findings, what is missing, what runs instead."""
    text, style = WORDS[answer.verdict]
    asked = [f"{name} {version}" for name, version in answer.requirement.items()]
    if len(asked) > 5:
        asked = [*asked[:4], f"{len(asked) - 4} more"]
    what = ", ".join(asked) or answer.chosen.get("base", "")
    where = ", ".join(_gpu(g) for g in answer.host["gpus"])
    driver = answer.host.get("driver") or (
        answer.host.get("driver_cuda") and f"driver_cuda {answer.host['driver_cuda']}"
    )
    place = " on ".join(p for p in (what, where) if p) + (f", driver {driver}" if driver else "")
    out.print(f"[{style}]{text}[/]  {_safe(place)}")
    for one in answer.per_gpu if len(answer.per_gpu) > 1 else ():
        out.print(f"    {_safe(one['gpu'])}: {one['verdict']}")
    out.print()
    for finding in answer.findings:
        mark, colour = MARKS[finding.verdict]
        out.print(f"[{colour}]{mark}[/] [bold]{finding.rule}[/]  {_safe(finding.evidence)}")
        if finding.fix and finding.verdict != "yes":
            out.print(f"    → {_safe(finding.fix)}", style="dim")
    if answer.missing:
        out.print(f"\nStill needed to decide: {_safe(', '.join(answer.missing))}", style="yellow")
    if answer.verdict == "does-not-fit" and answer.instead:
        out.print("\nInstead:", style="bold")
        for entry in answer.instead:
            out.print(f"  • {_safe(advice(entry))}")
    elif answer.verdict in WORDS and answer.verdict.startswith("fits"):
        out.print(f"\n{_safe(chosen_line(answer.chosen))}", style="dim")


def advice(entry: dict[str, Any]) -> str:
    """One piece of advice in a line."""
    wanted = " ".join(f"{n}=={v}" for n, v in (entry.get("requirement") or {}).items())
    bits = [wanted] if wanted else []
    for key, text in (
        ("wheel_cuda", "wheel_cuda"),
        ("python", "Python"),
        ("index_url", "from"),
        ("base", "on"),
        ("driver", "driver"),
    ):
        if entry.get(key):
            bits.append(f"{text} {entry[key]}")
    return ", ".join(bits) + (f": {entry['why']}" if entry.get("why") else "")


def chosen_line(chosen: dict[str, Any]) -> str:
    """What was judged, in a line."""
    return "Judged: " + ", ".join(f"{k} {v}" for k, v in chosen.items() if not isinstance(v, (dict, list)))


def _gpu(gpu: dict[str, Any]) -> str:
    capability = f" ({gpu['compute_capability']})" if gpu.get("compute_capability") else ""
    count = f" ×{gpu['count']}" if gpu.get("count", 1) > 1 else ""
    return f"{gpu['name']}{capability}{count}"


def _safe(text: object) -> str:
    return str(text).replace("[", "\\[")
