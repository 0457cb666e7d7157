"""--gpu and --driver: the same judgement as ``gpuimg fit``, as findings of a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from gpuimg.knowledge import Knowledge
from gpuimg.lint.facts import Options, finding
from gpuimg.nouns import LintFinding, ProjectNeeds
from gpuimg.project.entries import FileNeeds
from gpuimg.project.needs import needs_of_dockerfile, needs_of_file


def hardware(
    options: Options,
    kb: Knowledge,
    *,
    dockerfile: tuple[str, str, Path | None] | None = None,
    needs: FileNeeds | None = None,
) -> Iterator[LintFinding]:
    """Findings of ``fit`` that say no (errors) or warn, when a card or a driver was given."""
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
        if one.rule not in {
            "sm",
            "driver",
            "require",
            "engine",
            "limits",
            "cudnn-card",
            "forward-compat",
            "arch",
            "base",
        }:
            continue
        if one.verdict in {"no", "warn"}:
            where = f" ({one.gpu})" if one.gpu else ""
            yield finding(
                f"fit-{one.rule}", "error" if one.verdict == "no" else "warning", (file, None), f"{one.evidence}{where}",
                one.fix or f"gpuimg fit -r {file} shows what runs there instead", one.source,
            )  # fmt: skip
