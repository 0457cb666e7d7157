"""Lock files: uv.lock, poetry.lock, pdm.lock, pylock.toml (TOML with [[package]]), Pipfile.lock (JSON), Pipfile."""

from __future__ import annotations

import json
from typing import Any

from packaging.utils import canonicalize_name

from gpuimg.errors import BadInput
from gpuimg.nouns import Requirement
from gpuimg.project.conda import python_of_specifier
from gpuimg.project.entries import FileNeeds, Index, Problem, pip_requirement, split_local
from gpuimg.project.pyproject import caret
from gpuimg.project.tomltext import Lines, as_dict, as_list, parse_toml

PYPI = ("https://pypi.org/simple", "https://pypi.org/simple/")


def parse_toml_lock(text: str, file: str) -> FileNeeds:
    """uv.lock, poetry.lock, pdm.lock or pylock.toml: one exact requirement per package. Raises BadInput."""
    document = parse_toml(text, file)
    lines = Lines(text)
    found: list[Requirement] = []
    indexes: dict[str, Index] = {}
    packages = as_list(document.get("package")) or as_list(document.get("packages"))
    for row in packages:
        entry = as_dict(row)
        name, version = entry.get("name"), entry.get("version")
        if not isinstance(name, str):
            continue
        line = lines.find(f'name = "{name}"')
        source = entry.get("source")
        place = as_dict(source)
        if place.get("editable") or place.get("virtual"):
            continue
        registry = place.get("registry") or place.get("url") or entry.get("index")
        if isinstance(registry, str) and registry.startswith("http") and registry not in PYPI:
            known = indexes.get(registry)
            names = (*(known.packages if known else ()), canonicalize_name(name))
            indexes[registry] = Index(
                registry, "source", file, known.line if known else line, tuple(dict.fromkeys(names))
            )
        if not isinstance(version, str):
            continue
        specifier, local = split_local(f"=={version}")
        found.append(
            Requirement(
                name=canonicalize_name(name),
                specifier=specifier,
                local=local,
                raw=f"{name}=={version}",
                file=file,
                line=line,
                from_file=True,
            )
        )
    python = document.get("requires-python") or as_dict(document.get("metadata")).get("python-versions")
    python = python if isinstance(python, str) else None
    return FileNeeds(
        kind="lock", file=file, requirements=tuple(found), indexes=tuple(indexes.values()), files=(file,), locked=True,
        python=python_of_specifier(caret(python)) if python else None,
        python_line=lines.find(python) if python else None,
    )  # fmt: skip


def parse_pipfile(text: str, file: str) -> FileNeeds:
    """Pipfile. Raises BadInput when it is no TOML."""
    document = parse_toml(text, file)
    lines = Lines(text)
    found: list[Requirement] = []
    problems: list[Problem] = []
    for table in ("packages", "dev-packages"):
        for name, value in as_dict(document.get(table)).items():
            entry = as_dict(value)
            version: Any = value if isinstance(value, str) else entry.get("version", "")
            version = "" if version == "*" or not isinstance(version, str) else version
            extras = ",".join(e for e in as_list(entry.get("extras")) if isinstance(e, str))
            line = lines.find(f"{name} =") or lines.find(name)
            made = pip_requirement(f"{name}{f'[{extras}]' if extras else ''}{version}", file=file, line=line)
            if made is None:
                problems.append(Problem(file, line, f"{name} = {version}", "is not a version Pipenv takes"))
            else:
                found.append(made)
    indexes = []
    for row in as_list(document.get("source")):
        url = as_dict(row).get("url")
        if isinstance(url, str):
            indexes.append(Index(url, "extra-index-url", file, lines.find(url)))
    requires = as_dict(document.get("requires"))
    python = requires.get("python_version") or requires.get("python_full_version")
    return FileNeeds(
        kind="pipfile", file=file, requirements=tuple(found), indexes=tuple(indexes), problems=tuple(problems),
        files=(file,), python=".".join(python.split(".")[:2]) if isinstance(python, str) else None,
        python_line=lines.find("python_version") if python else None,
    )  # fmt: skip


def parse_pipfile_lock(text: str, file: str) -> FileNeeds:
    """Pipfile.lock. Raises BadInput when it is no JSON object."""
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise BadInput.at(file, error.lineno, f"is not JSON: {error.msg}") from error
    except RecursionError as error:
        raise BadInput.at(file, None, "is not JSON: nested too deeply") from error
    if not isinstance(document, dict):
        raise BadInput.at(file, 1, "is no Pipfile.lock: expected a JSON object")
    lines = Lines(text)
    found = []
    for section in ("default", "develop"):
        for name, value in as_dict(document.get(section)).items():
            version = as_dict(value).get("version")
            if isinstance(version, str):
                made = pip_requirement(f"{name}{version}", file=file, line=lines.find(f'"{name}"'))
                if made is not None:
                    found.append(made)
    indexes = []
    for row in as_list(as_dict(document.get("_meta")).get("sources")):
        url = as_dict(row).get("url")
        if isinstance(url, str):
            indexes.append(Index(url, "extra-index-url", file, lines.find(url)))
    python = as_dict(as_dict(document.get("_meta")).get("requires")).get("python_version")
    return FileNeeds(
        kind="lock", file=file, requirements=tuple(found), indexes=tuple(indexes), files=(file,), locked=True,
        python=python if isinstance(python, str) else None,
    )  # fmt: skip
