"""Reports as documents: Markdown for a merge request, self-contained HTML for everyone else."""

from __future__ import annotations

from typing import Any

from gpuimg.report.curves import curves_of, svg
from gpuimg.report.entry import Entry
from gpuimg.report.terminal import scope_text
from gpuimg.report.values import flat, short
from gpuimg.report.words import Language, title_of, word

_TRIANGLE = ("driver", "driver_cuda", "wheel_cuda", "base_cuda", "cudnn", "nccl")


def facts(entry: Entry, language: Language) -> list[tuple[str, str]]:
    """Label and value of what the report is about; unknown facts say so, they are not left out."""
    unknown = word("unknown", language)
    predicate = (entry.certificate or {}).get("predicate") or {}
    triangle = predicate.get("triangle") or {}
    environment = entry.evidence.environment
    rows = [
        (word("image", language), entry.name),
        (word("digest", language), entry.evidence.image_digest or unknown),
        (word("scope", language), scope_text(entry, language)),
        (word("expires", language), str(predicate.get("expires") or "–")),
        (word("framework", language), _framework(environment) or unknown),
        (word("gpus", language), ", ".join(str(g.get("name")) for g in environment.get("gpus") or []) or "–"),
        (word("injection", language), entry.evidence.injection),
    ]
    for key in _TRIANGLE:
        value = triangle.get(key) or environment.get(key)
        if value or entry.verdict.get("device") == "cuda":
            rows.append((word(key, language), str(value or unknown)))
    rows.append((word("suite", language), f"{entry.evidence.suite_version} {entry.evidence.suite_digest[:19]}"))
    rows.append((word("time", language), f"{entry.evidence.started} – {entry.evidence.finished}"))
    return rows


def to_markdown(entries: list[Entry], language: Language = "en") -> str:
    """One section per entry: verdict, facts, what is wrong and what to do, the table of checks."""
    out = [f"# {word('title', language)}", ""]
    for entry in entries:
        counts = ", ".join(f"{n} {word(s, language)}" for s, n in entry.counts.items() if n)
        out += [
            f"## {word(entry.answer, language)}: {_md(entry.name)}",
            "",
            f"{scope_text(entry, language)}; {counts}",
            "",
        ]
        out += ["| | |\n|---|---|\n" + "\n".join(f"| {_md(k)} | {_md(v)} |" for k, v in facts(entry, language)), ""]
        for check in entry.troubles:
            out.append(f"- **{check.id}**: {_md(check.reason or check.status)}")
            if check.hint:
                out.append(f"  - {word('hint', language)}: {_md(check.hint)}")
        told = {f"{c.id}: {c.reason or c.status}" for c in entry.troubles}
        rest = [r for r in entry.verdict.get("reasons") or [] if r not in told]
        if rest:
            heading = "limits" if entry.verdict.get("certified") else "why"
            out += ["", f"**{word(heading, language)}**", "", *(f"- {_md(r)}" for r in rest)]
        keys = ("status", "check", "seconds", "measured")
        out += ["", "| " + " | ".join(word(k, language) for k in keys) + " |", "|---|---|---:|---|"]
        for check in entry.evidence.checks:
            what = check.reason if check.status != "pass" and check.reason else short(check.measured)
            name = f"`{check.id}` {_md(title_of(check.id, check.title, language))}"
            out.append(f"| {word(check.status, language)} | {name} | {check.seconds:.1f} | {_md(what)} |")
        out.append("")
    return "\n".join(out)


def to_html(entries: list[Entry], language: Language = "en") -> str:
    """One file without scripts or outside references; curves are inline SVG. All text of the image is escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("gpuimg.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    return environment.get_template("report.html.j2").render(
        language=language,
        word=lambda key: word(key, language),
        subjects=[_subject(entry, language) for entry in entries],
    )


def _subject(entry: Entry, language: Language) -> dict[str, Any]:
    told = {f"{c.id}: {c.reason or c.status}" for c in entry.troubles}
    return {
        "name": entry.name,
        "answer": entry.answer,
        "scope": scope_text(entry, language),
        "counts": [(s, n) for s, n in entry.counts.items() if n],
        "facts": facts(entry, language),
        "troubles": entry.troubles,
        "reasons": [r for r in entry.verdict.get("reasons") or [] if r not in told],
        "certified": bool(entry.verdict.get("certified")),
        "checks": [
            {
                "id": c.id,
                "title": title_of(c.id, c.title, language),
                "status": c.status,
                "seconds": f"{c.seconds:.1f}",
                "reason": c.reason,
                "hint": c.hint,
                "short": short(c.measured, 120),
                "measured": [(k, short({"": v}, 400)[1:]) for k, v in flat(c.measured)],
                "expected": [(k, short({"": v}, 400)[1:]) for k, v in flat(c.expected)],
            }
            for c in entry.evidence.checks
        ],
        "curves": [{"title": c.title, "svg": svg(c)} for c in curves_of(entry.evidence, language)],
    }


def _framework(environment: dict[str, Any]) -> str | None:
    name = environment.get("framework")
    if name is None:
        return None
    version = (environment.get("frameworks") or {}).get(name)
    return f"{name} {version}" if version else str(name)


def _md(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")
