"""environment.yml of conda: channels, packages, the pip section."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gpuimg.errors import BadInput
from gpuimg.nouns import Requirement
from gpuimg.project.entries import FileNeeds, Index, Problem, conda_requirement
from gpuimg.project.requirements import parse_requirements
from gpuimg.project.yamltext import elements, get, is_mapping, items, line_of, parse_yaml, scalar


def parse_environment(text: str, file: str, *, folder: Path | None = None) -> FileNeeds:
    """What a conda environment asks for. Raises BadInput when it is no YAML mapping."""
    root = parse_yaml(text, file)
    if root is None:
        return FileNeeds(kind="conda", file=file)
    if not is_mapping(root):
        raise BadInput.at(file, line_of(root), "is no conda environment: expected name, channels and dependencies")
    channels: list[tuple[str, int | None]] = []
    conda: list[Requirement] = []
    pip: list[Requirement] = []
    constraints: list[Requirement] = []
    indexes: list[Index] = []
    options: list[tuple[str, str, int | None]] = []
    problems: list[Problem] = []
    files = [file]
    python: str | None = None
    python_line: int | None = None
    for node in elements(get(root, "channels")):
        value = scalar(node)
        if value is not None:
            channels.append((value, line_of(node)))
    for node in elements(get(root, "dependencies")):
        line = line_of(node)
        text_value = scalar(node)
        if text_value is not None:
            made = conda_requirement(text_value, file=file, line=line)
            if made is None:
                problems.append(Problem(file, line, text_value, "conda cannot read this package specification"))
                continue
            channel = text_value.partition("::")[0] if "::" in text_value else None
            if channel and channel not in [c for c, _ in channels]:
                channels.append((channel, line))
            if made.name == "python":
                python, python_line = python_of_specifier(made.specifier), line
            conda.append(made)
            continue
        for key, _, value_node in items(node):
            if key != "pip":
                continue
            for pip_node in elements(value_node):
                pip_line = line_of(pip_node)
                pip_text = scalar(pip_node)
                if pip_text is None:
                    continue
                inner = parse_requirements(pip_text, file, folder=folder)
                moved = pip_line - 1
                pip.extend(_moved(r, file, moved) for r in inner.requirements)
                constraints.extend(inner.constraints)
                indexes.extend(replace(i, line=(i.line or 1) + moved) if i.file == file else i for i in inner.indexes)
                options.extend((n, v, pip_line) for n, v, _ in inner.options)
                problems.extend(replace(p, line=pip_line) for p in inner.problems)
                files.extend(f for f in inner.files if f != file)
    return FileNeeds(
        kind="conda", file=file, requirements=tuple(pip), constraints=tuple(constraints), conda=tuple(conda),
        channels=tuple(channels), python=python, python_line=python_line, indexes=tuple(indexes),
        options=tuple(options),
        problems=tuple(problems), files=tuple(files), name=scalar(get(root, "name")),
    )  # fmt: skip


def _moved(requirement: Requirement, file: str, by: int) -> Requirement:
    if requirement.file != file or requirement.line is None:
        return requirement
    return replace(requirement, line=requirement.line + by)


def python_of_specifier(specifier: str) -> str | None:
    """'==3.10.*', '==3.10.12' → '3.10'; other specifiers as they are; '' → None."""
    if not specifier:
        return None
    if specifier.startswith("==") and "," not in specifier:
        parts = specifier[2:].split(".")
        if len(parts) >= 2 and parts[0].isdigit() and parts[1].isdigit():
            return f"{parts[0]}.{parts[1]}"
        if parts[0] == "3" and parts[1:] in ([], ["*"]):
            return None
    return specifier
