"""A Dockerfile made ready for rules: for each stage its image, its commands, its installs, its Python."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gpuimg.errors import BadInput
from gpuimg.knowledge import Knowledge
from gpuimg.lint.base import Base, base_of
from gpuimg.lint.facts import Item, Options, PackageSet
from gpuimg.nouns import Requirement
from gpuimg.project.dockerfile import Dockerfile, Stage, Step
from gpuimg.project.entries import FileNeeds, Index
from gpuimg.project.installs import Install, installs
from gpuimg.project.needs import context_file, read_package_list, with_environment_indexes
from gpuimg.project.shell import Command


@dataclass(frozen=True)
class Run:
    """One command of a RUN line, with what is in scope. ``install`` when it installs something."""

    stage: Stage
    step: Step
    command: Command
    install: Install | None

    @property
    def line(self) -> int:
        return self.command.line


@dataclass(frozen=True)
class StageView:
    """A stage together with the stages it is built on: what is in its file system at the end."""

    stage: Stage
    base: Base
    runs: tuple[Run, ...]
    """Of the whole chain, in order."""
    env: Mapping[str, str]
    final: bool
    files: Mapping[str, FileNeeds] = field(default_factory=dict)
    """Requirements files found beside the Dockerfile, by the name in the command."""
    python: str | None = None
    python_from: str = ""
    scripts: tuple[str, ...] = ()

    @property
    def installs(self) -> tuple[tuple[Run, Install], ...]:
        return tuple((r, r.install) for r in self.runs if r.install is not None)

    def apt(self) -> frozenset[str]:
        """System packages installed, without versions and architectures."""
        return frozenset(
            re.split(r"[=:/]", t)[0] for _, i in self.installs if i.manager in {"apt", "yum", "apk"} for t in i.texts
        )

    def own(self, run: Run) -> bool:
        """Is the command in this very stage, not in one below?"""
        return run.stage.index == self.stage.index


@dataclass(frozen=True)
class DockerContext:
    """All stages that the image needs, and those it does not."""

    dockerfile: Dockerfile
    views: tuple[StageView, ...]
    folder: Path | None
    options: Options

    @property
    def file(self) -> str:
        return self.dockerfile.file

    @property
    def final(self) -> StageView:
        return next(v for v in self.views if v.final)


def docker_context(dockerfile: Dockerfile, kb: Knowledge, options: Options, folder: Path | None) -> DockerContext:
    """Reads what the rules need once. ``folder`` is the build context, for the files that are installed."""
    views = []
    used = {s.index for s in dockerfile.used()}
    for stage in dockerfile.stages:
        if stage.index not in used:
            continue
        root = dockerfile.root(stage)
        reference = (
            options.base if options.base and root.index == dockerfile.root(dockerfile.final).index else root.base
        )
        base = base_of(kb, reference)
        runs: list[Run] = []
        files: dict[str, FileNeeds] = {}
        for one in dockerfile.chain(stage):
            for step in one.steps:
                if step.instruction.keyword != "RUN":
                    continue
                for command in step.commands():
                    found = installs([command], dockerfile.file)
                    made = with_environment_indexes(found[0], dict(step.variables)) if found else None
                    runs.append(Run(one, step, command, made))
                    for name in made.files if made is not None else ():
                        path = context_file(folder, name) if folder is not None else None
                        if path is not None and name not in files:
                            try:
                                files[name] = read_package_list(path)
                            except BadInput:
                                continue
        python, origin = _python(base, runs, stage, kb, options)
        views.append(
            StageView(
                stage, base, tuple(runs), stage.env, stage.index == dockerfile.final.index, files, python, origin
            )
        )  # fmt: skip
    return DockerContext(dockerfile, tuple(views), folder, options)


def _python(base: Base, runs: list[Run], stage: Stage, kb: Knowledge, options: Options) -> tuple[str | None, str]:
    """The Python that ``pip install`` uses, and how that is known."""
    if options.python:
        return options.python, "as given"
    explicit = [
        r.install.python for r in runs if r.install and r.install.python and r.install.manager in {"pip", "uv", "conda"}
    ]
    if explicit:
        return explicit[-1], "named by the install command"
    told: tuple[str, str] | None = None
    for run in runs:
        words, text = run.command.words, run.command.text
        if run.command.program == "uv" and len(words) > 1 and words[1] in {"venv", "python"}:
            found = re.search(r"(?:--python[= ]|-p |install )(?:cpython-?)?(3\.\d+)", text)
            told = (found[1], "named by uv") if found else told
        found = re.search(r"python(3\.\d+) -m venv|virtualenv .*python(3\.\d+)", text)
        if found:
            told = (found[1] or found[2], "of the virtual environment")
        found = re.search(r"(?:update-alternatives.*|ln .*)/python(3\.\d+)\b", text)
        if found:
            told = (found[1], "set as the default")
        if "get-pip.py" in text:
            found = re.match(r"(?:.*[ /])?python(3\.\d+)\b", text)
            told = (found[1], "pip was installed for it") if found else told
    if told is not None:
        return told
    if base.facts.repository.endswith("pytorch/pytorch") and _release(base) >= (2, 9):
        return None, ""  # these images moved from conda's Python to the distribution's; the tables do not follow yet
    if base.facts.python_installed:
        return base.facts.python, f"of {base.reference}"
    if "PYENV_VERSION" in stage.env or any(
        r.command.program in {"pyenv", "conda", "mamba", "micromamba"} for r in runs
    ):
        return None, ""
    if any("miniconda" in r.command.text.lower() or "miniforge" in r.command.text.lower() for r in runs):
        return None, ""
    versions = sorted(
        {
            m[1]
            for r in runs
            if r.install and r.install.manager in {"apt", "yum"}
            for t in r.install.texts
            if (m := re.match(r"^python(3\.\d+)(?:=|$)", t))
        }
    )
    own = kb.python_of_os(base.os.id) if base.os is not None else None
    if versions and own not in versions and len(versions) == 1:
        # a second Python beside the distribution's: plain pip belongs to the distribution's
        return None, ""
    if base.plain and own:
        return own, f"of {base.os.id}" if base.os else ""
    return None, ""


def _release(base: Base) -> tuple[int, ...]:
    """(2, 9, 0) of a pytorch/pytorch tag; () when it names no version."""
    found = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", base.facts.tag or "")
    return tuple(int(p) for p in found.groups() if p) if found else ()


_ISOLATED = {"--target", "-t", "--prefix", "--root"}


def environment_of(made: Install) -> str:
    """Which Python an install goes to: '' for the one on PATH, else the folder of its pip or the environment's name."""
    if made.environment:
        return made.environment
    executable = made.python_exe or made.executable
    folder = executable.rpartition("/")[0]
    return "" if folder in {"", "/usr/bin", "/usr/local/bin", "/bin"} else folder


def package_sets(view: StageView, context: DockerContext, kb: Knowledge) -> tuple[PackageSet, ...]:
    """One set for each Python the stage installs into."""
    names = dict.fromkeys(environment_of(made) for _, made in view.installs if made.manager in {"pip", "uv"})
    return tuple(package_set(view, context, kb, name) for name in names) or (package_set(view, context, kb),)


def package_set(view: StageView, context: DockerContext, kb: Knowledge, environment: str | None = None) -> PackageSet:
    """Everything pip installs into the stage, files included; later pins replace earlier ones of the same package.

    ``environment`` limits it to one of the stage's Pythons; None takes the one most is installed into.
    """
    if environment is None:
        counts: dict[str, int] = {}
        for _, made in view.installs:
            if made.manager in {"pip", "uv"}:
                counts[environment_of(made)] = counts.get(environment_of(made), 0) + len(made.texts)
        environment = max(counts, key=lambda n: counts[n]) if counts else ""
    items: list[Item] = []
    constraints: dict[str, Requirement] = {}
    elsewhere: set[str] = {name for name, _ in view.base.facts.frameworks}
    for number, (_run, made) in enumerate(view.installs):
        if made.manager == "conda":
            elsewhere.update({"pytorch": "torch"}.get(r.name, r.name) for r in made.requirements)
            continue
        if made.manager not in {"pip", "uv"} or made.flags & _ISOLATED or environment_of(made) != environment:
            continue
        shared = {"indexes": made.indexes, "conditional": made.conditional}
        isolated = "--no-build-isolation" not in made.flags
        for one in made.requirements:
            items.append(Item(one, made.indexes, made.conditional, not isolated, number, made.manager))
        for name in (*made.files, *made.constraint_files):
            needs = view.files.get(name)
            if needs is None:
                continue
            if name in made.constraint_files:
                constraints.update({r.name: r for r in needs.requirements})
                continue
            seen: tuple[Index, ...] = (*made.indexes, *needs.indexes)
            items.extend(
                Item(r, seen, bool(shared["conditional"]), not isolated, number, made.manager)
                for r in needs.requirements
            )
    last: dict[str, int] = {}
    for position, item in enumerate(items):
        if not item.conditional:
            last[item.req.name] = position
    kept = [
        i
        for p, i in enumerate(items)
        if i.conditional
        or last.get(i.req.name) == p
        or items[last[i.req.name]].group == i.group
        or not items[last[i.req.name]].req.specifier
    ]
    machine = "aarch64" if view.stage.platform and "arm64" in view.stage.platform else context.options.machine
    glibc = context.options.glibc or (view.base.os.glibc if view.base.os else None)
    return PackageSet(
        items=tuple(kept), python=view.python, python_from=view.python_from, os=view.base.os, glibc=glibc, machine=machine,
        base=view.base, kind="dockerfile", trusted_hosts=_trusted(view), base_torch=_base_torch(view), names_elsewhere=frozenset(elsewhere),
    )  # fmt: skip


def _base_torch(view: StageView) -> Item | None:
    """torch of the base image as a requirement; its CUDA names the build."""
    facts = view.base.facts
    version = dict(facts.frameworks).get("torch")
    if version is None or facts.kind == "ngc":
        return None
    label = f"cu{facts.base_cuda.replace('.', '')}" if facts.base_cuda else None
    return Item(Requirement(name="torch", specifier=f"=={version}", local=label), manager="image")


def _trusted(view: StageView) -> frozenset[str]:
    """Hosts that pip is told to trust, by option, environment or configuration."""
    found: set[str] = set()
    for run, made in view.installs:
        found.update(v for k, v in made.options if k == "--trusted-host")
        found.update(str(run.step.variables.get("PIP_TRUSTED_HOST", "")).split())
    for run in view.runs:
        found.update(re.findall(r"trusted[-_]host[ =]+['\"]?([\w.-]+)", run.command.text))
    return frozenset(found)
