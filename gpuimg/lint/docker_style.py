"""Advice on Dockerfiles that never breaks a build: caches, order, root, shell forms. Notes, kept few."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpuimg.knowledge import Knowledge
from gpuimg.lint.docker_context import DockerContext
from gpuimg.lint.facts import finding
from gpuimg.nouns import LintFinding

PRACTICE = "https://docs.docker.com/build/building/best-practices/"


def style(context: DockerContext, kb: Knowledge) -> Iterator[LintFinding]:
    """One note of each kind at most: the first place, and how many more."""
    yield from _problems(context)
    yield from _once(list(_pip_cache(context)))
    yield from _once(list(_apt_lists(context)))
    yield from _once(list(_copy_order(context)))
    yield from _once(list(_secrets_copied(context)))
    yield from _final(context)
    yield from _unpinned(context)


def _once(found: list[LintFinding]) -> Iterator[LintFinding]:
    if not found:
        return
    first = found[0]
    if len(found) > 1:
        lines = ", ".join(str(f.line) for f in found[1:6])
        first = LintFinding(
            first.rule,
            first.severity,
            first.file,
            first.line,
            f"{first.message} (also line {lines})",
            first.fix,
            first.source,
        )
    yield first


def _problems(context: DockerContext) -> Iterator[LintFinding]:
    for line, text in context.dockerfile.problems:
        yield finding(
            "dockerfile-syntax",
            "error",
            (context.file, line),
            text,
            "see the Dockerfile reference",
            "https://docs.docker.com/reference/dockerfile/",
        )
    for stage in context.dockerfile.stages:
        for step in stage.steps:
            made = step.instruction
            source = made.flag("from")
            if source and made.keyword == "COPY":
                target = context.dockerfile.stage_named(source, before=stage.index)
                if target is None and source.isdigit():
                    yield finding(
                        "dockerfile-syntax",
                        "error",
                        (context.file, made.line),
                        f"COPY --from={source}: there is no such stage before this one",
                        "name an earlier stage",
                        "https://docs.docker.com/build/building/multi-stage/",
                    )
            if made.keyword == "MAINTAINER":
                yield finding(
                    "dockerfile-syntax",
                    "note",
                    (context.file, made.line),
                    "MAINTAINER is deprecated",
                    "LABEL org.opencontainers.image.authors=…",
                    "https://docs.docker.com/reference/dockerfile/#maintainer-deprecated",
                )


def _pip_cache(context: DockerContext) -> Iterator[LintFinding]:
    for view in context.views:
        for run, made in view.installs:
            if made.manager != "pip" or not view.own(run) or "--no-cache-dir" in made.flags:
                continue
            variables = run.step.variables
            mounted = any(k == "mount" and "cache" in v for k, v in run.step.instruction.flags)
            purged = any(
                r.step is run.step and re.search(r"pip\d? cache purge|rm -rf .*\.cache", r.command.text)
                for r in view.runs
            )
            if mounted or purged or variables.get("PIP_NO_CACHE_DIR"):
                continue
            yield finding(
                "pip-cache",
                "note",
                (context.file, made.line),
                "pip keeps a copy of every wheel it downloads in the layer",
                "pip install --no-cache-dir, or RUN --mount=type=cache,target=/root/.cache/pip",
                "https://pip.pypa.io/en/stable/topics/caching/",
            )


def _apt_lists(context: DockerContext) -> Iterator[LintFinding]:
    for view in context.views:
        if not view.final:
            continue
        for run, made in view.installs:
            if made.manager != "apt" or not view.own(run):
                continue
            cleaned = re.search(r"/var/lib/apt/lists|apt-get (dist)?clean", run.step.instruction.value) or any(
                "/var/" in v for k, v in run.step.instruction.flags if k == "mount"
            )
            if not cleaned:
                yield finding(
                    "apt-lists",
                    "note",
                    (context.file, made.line),
                    "the package lists stay in the layer (some 40 MB)",
                    "end the RUN with && rm -rf /var/lib/apt/lists/*",
                    f"{PRACTICE}#apt-get",
                )


def _copy_order(context: DockerContext) -> Iterator[LintFinding]:
    view = context.final
    copied: int | None = None
    for step in view.stage.steps:
        made = step.instruction
        if (
            made.keyword in {"COPY", "ADD"}
            and not made.flag("from")
            and re.match(r"^\.\s|^\./\s|^\[\s*\"\.\"", made.one_line)
        ):
            copied = made.line
        if (
            made.keyword == "RUN"
            and copied is not None
            and re.search(r"pip3? install (?!.*(-e|--editable) )[^&]*-r|conda env|poetry install|uv sync", made.value)
        ):
            yield finding(
                "copy-order",
                "note",
                (context.file, copied),
                "the whole project is copied before its dependencies are installed: every change installs them again",
                "COPY requirements.txt first, install, then COPY .",
                f"{PRACTICE}#leverage-build-cache",
            )
            return


def _secrets_copied(context: DockerContext) -> Iterator[LintFinding]:
    for view in context.views:
        for step in view.stage.steps:
            made = step.instruction
            if made.keyword not in {"COPY", "ADD"} or made.flag("from"):
                continue
            found = re.search(
                r"(\.cache/huggingface|\.huggingface|\.netrc|\.aws\b|\.ssh\b|id_rsa|\.env\b(?!/)|kaggle\.json|\.git-credentials)",
                made.one_line,
            )
            if found:
                cache = "cache/" in found[1]
                yield finding(
                    "secret", "warning", (context.file, made.line),
                    f"{found[1]} is copied into the image" + (": models make it huge, and its token file goes along" if cache else ": everybody who pulls it has the secret"),
                    "mount it at run time, or use RUN --mount=type=secret", "https://docs.docker.com/build/building/secrets/",
                )  # fmt: skip


def _final(context: DockerContext) -> Iterator[LintFinding]:
    view = context.final
    user = view.stage.user
    starts = [s for s in view.stage.steps if s.instruction.keyword in {"CMD", "ENTRYPOINT"}]
    if starts and user in {None, "root", "0"}:
        yield finding(
            "root-user",
            "note",
            (context.file, starts[-1].instruction.line),
            "the container runs as root",
            "add a USER with a fixed id",
            f"{PRACTICE}#user",
        )
    for step in starts:
        made = step.instruction
        if made.exec_form is None and made.keyword == "ENTRYPOINT" and not made.one_line.startswith("exec "):
            yield finding(
                "shell-form",
                "note",
                (context.file, made.line),
                "ENTRYPOINT in shell form: the program gets no signals, and CMD's arguments are lost",
                'use the exec form: ENTRYPOINT ["python3", "app.py"]',
                "https://docs.docker.com/reference/dockerfile/#shell-and-exec-form",
            )


def _unpinned(context: DockerContext) -> Iterator[LintFinding]:
    """Frameworks without a version: another one with every build."""
    seen: set[str] = set()
    for view in context.views:
        for run, made in view.installs:
            if not view.own(run) or made.manager not in {"pip", "uv"}:
                continue
            for one in made.requirements:
                if (
                    one.name in {"torch", "tensorflow", "jax", "vllm", "onnxruntime-gpu", "torchvision"}
                    and not one.specifier
                    and not one.url
                    and one.name not in seen
                    and one.name not in made.constraint_files
                ):
                    seen.add(one.name)
                    yield finding(
                        "unpinned",
                        "note",
                        (context.file, made.line),
                        f"{one.name} has no version: its CUDA and the driver it needs change with every build",
                        f"pin it: {one.name}==…",
                        f"{PRACTICE}#pin-base-image-versions",
                    )
                if "--pre" in made.flags and one.name in {"torch", "jax", "tensorflow"}:
                    yield finding(
                        "prerelease",
                        "warning",
                        (context.file, made.line),
                        f"--pre takes whatever development build of {one.name} there is today",
                        "pin a released version",
                        "https://pip.pypa.io/en/stable/cli/pip_install/#pre-release-versions",
                    )
