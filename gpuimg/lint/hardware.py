"""--gpu and --driver: the same judgement as ``gpuimg fit``, as findings of a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from gpuimg.errors import CannotTell
from gpuimg.knowledge import Knowledge
from gpuimg.lint.facts import Options, finding
from gpuimg.nouns import LintFinding, ProjectNeeds
from gpuimg.project.entries import FileNeeds
from gpuimg.project.needs import needs_of_dockerfile, needs_of_file

SAID_ELSEWHERE = {
    "wheel",
    "python",
    "glibc",
    "one-cuda",
    "companions",
    "numpy",
    "index",
    "image",
    "requirement",
    "base",
    "tag",
}
"""Rules of ``fit`` that the linter has its own words for, card or no card."""


def hardware(
    options: Options,
    kb: Knowledge,
    *,
    dockerfile: tuple[str, str, Path | None] | None = None,
    needs: FileNeeds | None = None,
) -> Iterator[LintFinding]:
    """Findings of ``fit`` that say no (errors) or warn, when a card or a driver was given. CannotTell for an unknown card."""
    if not options.gpus and not options.driver:
        return
    from gpuimg.knowledge.fit import answer
    from gpuimg.knowledge.situation import Question

    project: ProjectNeeds
    if dockerfile is not None:
        text, file, folder = dockerfile
        project = needs_of_dockerfile(text, file, folder or Path("."))
    elif needs is not None:
        project, file = needs_of_file(needs), needs.file
    else:
        return
    question = Question(
        needs=project, gpus=options.gpus, driver=options.driver, base=options.base, python=options.python, os=options.os,
        glibc=options.glibc, machine=options.machine,
    )  # fmt: skip
    judged = answer(question, kb)
    for one in judged.findings:
        if one.verdict == "unknown" and one.rule in {"gpu", "gpu-name"}:
            raise CannotTell(f"--gpu {one.gpu or ', '.join(options.gpus)}: {one.evidence}", hint=one.fix)
    lines = {r.name: r.line for r in (*project.requirements, *project.conda)}
    better = _better(judged.instead)
    for one in judged.findings:
        if one.rule in SAID_ELSEWHERE or one.verdict not in {"no", "warn"}:
            continue
        where = f" ({one.gpu})" if one.gpu and one.gpu not in one.evidence else ""
        line = next((at for name, at in lines.items() if one.evidence.lower().startswith(f"{name} ")), None)
        yield finding(
            f"fit-{one.rule}", "error" if one.verdict == "no" else "warning", (file, line), f"{one.evidence}{where}",
            one.fix or better or "gpuimg resolve shows what runs there instead", one.source,
        )  # fmt: skip


def _better(instead: Sequence[Mapping[str, object]]) -> str | None:
    """The first alternative of ``fit`` in words."""
    if not instead:
        return None
    first = instead[0]
    requirement = first.get("requirement")
    names = " ".join(f"{k}=={v}" for k, v in requirement.items()) if isinstance(requirement, dict) else ""
    cuda = f"wheel_cuda {first['wheel_cuda']}" if first.get("wheel_cuda") else ""
    index = f"--index-url {first['index_url']}" if first.get("index_url") else ""
    driver = f"driver {first['driver']}" if first.get("driver") else ""
    said = ", ".join(part for part in (names, cuda, index, driver) if part)
    return said or (str(first["why"]) if first.get("why") else None)
