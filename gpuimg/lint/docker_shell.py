"""RUN as the shell sees it: what dash lacks, what ends with its RUN, activation of conda, paths out of the context."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpuimg.knowledge import Knowledge
from gpuimg.lint.docker_context import DockerContext, Run, StageView
from gpuimg.lint.facts import finding
from gpuimg.nouns import LintFinding

SHELL = "https://docs.docker.com/reference/dockerfile/#shell"
CONDA = "https://docs.conda.io/projects/conda/en/stable/dev-guide/deep-dives/activation.html"
TOS = "https://github.com/Tencent-Hunyuan/Hunyuan3D-2.1/pull/137"


def shell(context: DockerContext, kb: Knowledge) -> Iterator[LintFinding]:
    """``source`` in /bin/sh, ``conda activate`` without its hook, exports and folders that are lost."""
    for view in context.views:
        for run in view.runs:
            if not view.own(run):
                continue
            where = (context.file, run.line)
            program = run.command.program
            if program == "source" and _is_dash(view, run):
                yield finding(
                    "shell-source", "error", where, "'source' is bash's: /bin/sh here is dash, 'source: not found'", "use '.', or SHELL [\"/bin/bash\", \"-c\"] above it", SHELL,
                )  # fmt: skip
            if program == "conda" and run.command.words[1:2] == ("activate",) and not _hooked(view, run):
                yield finding(
                    "conda-activate", "error", where,
                    "'conda activate' needs the shell hook, which a RUN does not have: CommandNotFoundError: Your shell has not been properly configured",
                    "RUN conda run -n NAME …, or '. /opt/conda/etc/profile.d/conda.sh' in the same RUN, or put the environment first in PATH", CONDA,
                )  # fmt: skip
        yield from _lost(view, context)
        yield from _outside(view, context)
        yield from _terms(view, context)


def _is_dash(view: StageView, run: Run) -> bool:
    if run.step.shell[0].rsplit("/", 1)[-1] in {"bash", "zsh"}:
        return False
    value = run.step.instruction.value
    if (
        re.search(r"\b(bash|zsh)\b(\s+-\w+)*\s+-\w*c\b", value)
        or run.step.instruction.heredocs
        or run.step.instruction.exec_form
    ):
        return False
    if any(re.search(r"(ln|mv|rm|dpkg-reconfigure).*(/bin/sh|dash)", r.command.text) for r in view.runs):
        return False
    os_id = view.base.os.id if view.base.os else ""
    return os_id.startswith(("ubuntu", "debian"))


def _hooked(view: StageView, run: Run) -> bool:
    same = "\n".join(r.command.text for r in view.runs if r.step is run.step)
    if re.search(r"conda\.sh|conda shell\.|shell hook|\.bashrc|\.bash_profile|mamba\.sh|activate\b.*\bactivate", same):
        return True
    if (
        "-l" in " ".join(run.step.shell)
        or "--login" in run.step.shell
        or "-i" in run.step.shell
        or re.search(r"bash\s+(-\w*[li]\w*\s+)", run.step.instruction.value)
    ):
        return True
    return "conda" in " ".join(run.step.shell)


def _lost(view: StageView, context: DockerContext) -> Iterator[LintFinding]:
    """A RUN that only changes the shell it runs in."""
    steps: dict[int, list[Run]] = {}
    for run in view.runs:
        if view.own(run):
            steps.setdefault(id(run.step), []).append(run)
    for runs in steps.values():
        programs = {r.command.program for r in runs if r.command.words}
        first = runs[0]
        if (
            programs
            and programs <= {"export", "cd", "source", ".", "activate"}
            and not any(r.command.redirects for r in runs)
        ):
            what = first.command.text[:50]
            fix = (
                "ENV NAME=value"
                if "export" in programs
                else "WORKDIR"
                if "cd" in programs
                else "ENV PATH=/opt/venv/bin:$PATH"
            )
            yield finding(
                "lost-after-run", "warning", (context.file, first.line), f"'{what}' ends with its RUN: the next instruction starts a new shell", f"use {fix}", "https://docs.docker.com/reference/dockerfile/#run",
            )  # fmt: skip


def _outside(view: StageView, context: DockerContext) -> Iterator[LintFinding]:
    for step in view.stage.steps:
        made = step.instruction
        if made.keyword not in {"COPY", "ADD"} or made.flag("from"):
            continue
        words = made.exec_form or tuple(made.one_line.split())
        if any(re.match(r"^\.\./", w) for w in words[:-1]):
            yield finding(
                "outside-context", "error", (context.file, made.line), "COPY reaches out of the build context: not found", "build from the folder above: docker build -f sub/Dockerfile .", "https://docs.docker.com/build/concepts/context/",
            )  # fmt: skip


def _terms(view: StageView, context: DockerContext) -> Iterator[LintFinding]:
    """Miniconda of 2025 and later stops without accepted terms when Anaconda's own channels are used."""
    text = "\n".join(r.command.text for r in view.runs)
    latest = re.search(r"(Miniconda3|Anaconda3)-latest", text) is not None or (
        re.search(r"continuumio/(miniconda3|anaconda3)$", view.base.facts.repository) is not None
        and view.base.facts.tag in {None, "latest"}
    )
    accepted = re.search(
        r"conda tos accept|CONDA_PLUGINS_AUTO_ACCEPT_TOS|--override-channels|config.*--remove.*channels.*defaults|config.*channels.*conda-forge",
        text,
    )
    if not latest or accepted or any(k.startswith("CONDA_PLUGINS_AUTO_ACCEPT") for k in view.env):
        return
    for run, made in view.installs:
        if made.manager == "conda" and view.own(run) and not run.command.words[0].endswith(("micromamba", "mamba")):
            yield finding(
                "conda-terms", "error", (context.file, made.line),
                "the newest Miniconda asks to accept the terms of Anaconda's default channels and stops in a build: CondaToSNonInteractiveError",
                "conda tos accept --channel https://repo.anaconda.com/pkgs/main, or take Miniforge (conda-forge)", TOS,
            )  # fmt: skip
            return
