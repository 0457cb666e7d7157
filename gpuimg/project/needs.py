"""Several files, and a Dockerfile, → one ``ProjectNeeds``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gpuimg.errors import BadInput
from gpuimg.nouns import ProjectNeeds, Requirement
from gpuimg.project.detect import kind_of
from gpuimg.project.dockerfile import Dockerfile, Stage, parse_dockerfile
from gpuimg.project.entries import FileNeeds, Index
from gpuimg.project.installs import Install, installs
from gpuimg.project.readfile import parse_package_file
from gpuimg.project.requirements import read_requirements
from gpuimg.project.text import read_text


def read_needs(paths: Sequence[Path], dockerfile: Path | None = None) -> ProjectNeeds:
    """What a project asks for: the union of its files and of a Dockerfile's FROM, ENV and install commands.

    A Dockerfile among ``paths`` is taken as one. Requirements of pip keep the names they are written with
    (``pytorch`` in a requirements file is not torch); conda packages are in ``conda``. Constraint files and lock files
    bind versions of what is asked for. Raises BadInput, with file and line, for files that cannot be read or
    understood.
    """
    collected = _Collected()
    for path in paths:
        text = read_text(path)
        kind = kind_of(path.name, text)
        if kind == "dockerfile":
            if dockerfile is None:
                dockerfile = path
            continue
        if kind == "compose":
            raise BadInput.at(str(path), None, "is a compose file: it lists no packages; give the Dockerfile it builds")
        if kind == "unknown" and (not text.strip() or path.suffix in {".txt", ".in"}):
            kind = "requirements"
        collected.add(parse_package_file(text, str(path), kind, folder=path.parent))
    if dockerfile is not None:
        collected.add_dockerfile(parse_dockerfile(read_text(dockerfile), str(dockerfile)), dockerfile.parent)
    return collected.needs()


def needs_of_file(file: FileNeeds) -> ProjectNeeds:
    """One parsed file as ProjectNeeds. Raises BadInput when nothing in it can be read."""
    collected = _Collected()
    collected.add(file)
    return collected.needs()


def needs_of_dockerfile(text: str, file: str, folder: Path) -> ProjectNeeds:
    """A Dockerfile's text as ProjectNeeds; files it installs are looked for in ``folder``."""
    collected = _Collected()
    collected.add_dockerfile(parse_dockerfile(text, file), folder)
    return collected.needs()


class _Collected:
    def __init__(self) -> None:
        self.requirements: list[Requirement] = []
        self.constraints: dict[str, Requirement] = {}
        self.conda: list[Requirement] = []
        self.channels: list[str] = []
        self.indexes: list[str] = []
        self.files: list[str] = []
        self.notes: list[str] = []
        self.python: str | None = None
        self.base: str | None = None
        self.env: tuple[tuple[str, str], ...] = ()

    def add(self, file: FileNeeds) -> None:
        if file.problems:
            first = file.problems[0]
            if not file.requirements and not file.conda and file.kind == "requirements":
                raise BadInput.at(first.file, first.line, f"{first.reason}: {first.text[:60]!r}")
            self.notes.extend(f"{p.file}:{p.line}: {p.reason}: {p.text[:80]}" for p in file.problems)
        self.requirements.extend(file.requirements)
        for constraint in file.constraints:
            self.constraints.setdefault(constraint.name, constraint)
        self.conda.extend(file.conda)
        self.channels.extend(c for c, _ in file.channels)
        self.indexes.extend(i.url for i in file.indexes)
        self.files.extend(file.files or (file.file,))
        if file.python is not None and self.python is None:
            self.python = file.python

    def add_dockerfile(self, dockerfile: Dockerfile, folder: Path) -> None:
        self.files.append(dockerfile.file)
        final = dockerfile.final
        root = dockerfile.root(final)
        self.base = root.base
        if root.unset_args:
            self.notes.append(
                f"{dockerfile.file}:{root.line}: FROM uses {', '.join(root.unset_args)}, which has no value here"
            )
        self.env = tuple(final.env.items())
        for _, made in stage_installs(dockerfile, final):
            self._install(made, dockerfile, folder)

    def _install(self, made: Install, dockerfile: Dockerfile, folder: Path) -> None:
        self.indexes.extend(i.url for i in made.indexes)
        if made.manager == "conda":
            self.conda.extend(made.requirements)
            self.channels.extend(made.channels)
            for name in made.files:
                found = context_file(folder, name)
                if found is not None:
                    text = read_text(found)
                    self.add(parse_package_file(text, str(found), kind_of(found.name, text), folder=found.parent))
            if made.python and self.python is None:
                self.python = made.python
            return
        if made.manager in {"pip", "uv"}:
            self._replace(made)
            if made.python and self.python is None:
                self.python = made.python
            for name in made.files:
                found = context_file(folder, name)
                if found is None:
                    self.notes.append(
                        f"{dockerfile.file}:{made.line}: installs {name}, which is not beside the Dockerfile"
                    )
                else:
                    self.add(read_package_list(found))
            for name in made.constraint_files:
                found = context_file(folder, name)
                if found is not None:
                    for constraint in read_package_list(found).requirements:
                        self.constraints.setdefault(constraint.name, constraint)
        elif made.manager in {"poetry", "pipenv"}:
            self.requirements.extend(made.requirements)

    def _replace(self, made: Install) -> None:
        """A later command's pin replaces an earlier one of the same package; of if and else the first branch counts."""
        names = {r.name for r in self.requirements}
        for one in made.requirements:
            if one.name not in names:
                self.requirements.append(one)
            elif (one.specifier or one.url) and not made.conditional:
                mine = {id(r) for r in made.requirements}
                self.requirements = [r for r in self.requirements if r.name != one.name or id(r) in mine]
                self.requirements.append(one)

    def needs(self) -> ProjectNeeds:
        bound = []
        for one in self.requirements:
            constraint = self.constraints.get(one.name)
            if constraint is not None and constraint.specifier and not one.url:
                clauses = sorted({c for c in (*one.specifier.split(","), *constraint.specifier.split(",")) if c})
                one = replace(one, specifier=",".join(clauses), local=one.local or constraint.local)
            bound.append(one)
        return ProjectNeeds(
            requirements=tuple(dict.fromkeys(bound)), python=self.python, index_urls=tuple(dict.fromkeys(self.indexes)),
            base=self.base, conda_channels=tuple(dict.fromkeys(self.channels)), conda=tuple(dict.fromkeys(self.conda)),
            env=self.env, files=tuple(dict.fromkeys(self.files)), notes=tuple(self.notes),
        )  # fmt: skip


def read_package_list(path: Path) -> FileNeeds:
    """A file given to ``pip install -r``: requirements.txt whatever its name, or a pyproject.toml or lock."""
    text = read_text(path)
    kind = kind_of(path.name, text)
    if kind in {"unknown", "dockerfile", "compose", "matrix", "requirements"}:
        return read_requirements(path)
    return parse_package_file(text, str(path), kind, folder=path.parent)


def stage_installs(dockerfile: Dockerfile, stage: Stage) -> tuple[tuple[Stage, Install], ...]:
    """Install commands of a stage and of the stages below it, in the order they run."""
    found: list[tuple[Stage, Install]] = []
    for one in dockerfile.chain(stage):
        for step in one.steps:
            if step.instruction.keyword != "RUN":
                continue
            for made in installs(step.commands(), dockerfile.file):
                found.append((one, with_environment_indexes(made, step.variables)))
    return tuple(found)


def with_environment_indexes(made: Install, variables: object) -> Install:
    """Adds the indexes that PIP_INDEX_URL, PIP_EXTRA_INDEX_URL, PIP_FIND_LINKS, UV_INDEX_URL … in scope name."""
    if made.manager not in {"pip", "uv"} or not isinstance(variables, dict):
        return made
    kinds = {
        "PIP_INDEX_URL": "index-url", "UV_INDEX_URL": "index-url", "UV_DEFAULT_INDEX": "index-url",
        "PIP_EXTRA_INDEX_URL": "extra-index-url", "UV_EXTRA_INDEX_URL": "extra-index-url",
        "UV_INDEX": "extra-index-url",
        "PIP_FIND_LINKS": "find-links", "UV_FIND_LINKS": "find-links",
    }  # fmt: skip
    wanted = "PIP_" if made.manager == "pip" else "UV_"
    extra: list[Index] = []
    for name, kind in kinds.items():
        value = variables.get(name)
        if name.startswith(wanted) and isinstance(value, str):
            if kind == "index-url" and any(i.kind == "index-url" for i in made.indexes):
                continue
            extra.extend(Index(url, kind, "", made.line) for url in value.split())  # type: ignore[arg-type]
    return replace(made, indexes=(*made.indexes, *extra)) if extra else made


def context_file(folder: Path, name: str) -> Path | None:
    """The file a Dockerfile installs, when it lies in the build context: by its path, then by the end of it.

    ``/tmp/requirements.txt`` was copied from somewhere: a file of that name beside the Dockerfile is the one.
    """
    if not name or "$" in name or "://" in name or "\0" in name:
        return None
    parts = [p for p in re.split(r"[/\\]+", name) if p not in {"", ".", ".."}]
    for start in range(len(parts)):
        candidate = folder.joinpath(*parts[start:])
        try:
            if candidate.is_file():
                return candidate
        except OSError:
            return None
    return None
