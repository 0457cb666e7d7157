"""pyproject.toml: PEP 621 dependencies and extras, dependency groups, Poetry, PDM, uv's sources and indexes, pixi."""

from __future__ import annotations

import re
from typing import Any

from packaging.utils import canonicalize_name

from gpuimg.nouns import Requirement
from gpuimg.project.conda import python_of_specifier
from gpuimg.project.entries import FileNeeds, Index, Problem, conda_requirement, pip_requirement
from gpuimg.project.tomltext import Lines, as_dict, as_list, parse_toml


def parse_pyproject(text: str, file: str) -> FileNeeds:
    """What a pyproject.toml asks for. Extras and groups are included. Raises BadInput when it is no TOML."""
    document = parse_toml(text, file)
    lines = Lines(text)
    found: list[Requirement] = []
    problems: list[Problem] = []
    indexes: list[Index] = []
    project = as_dict(document.get("project"))
    tool = as_dict(document.get("tool"))
    python = project.get("requires-python") if isinstance(project.get("requires-python"), str) else None

    def add(value: Any) -> None:
        if not isinstance(value, str):
            return
        line = lines.find(value)
        made = pip_requirement(value, file=file, line=line)
        if made is None:
            problems.append(Problem(file, line, value, "is not a PEP 508 requirement"))
        else:
            found.append(made)

    for value in as_list(project.get("dependencies")):
        add(value)
    groups: list[tuple[str, tuple[Requirement, ...]]] = []
    for group in (as_dict(project.get("optional-dependencies")), as_dict(document.get("dependency-groups"))):
        for group_name, values in group.items():
            before = len(found)
            for value in as_list(values):
                add(value)
            groups.append((group_name, tuple(found[before:])))
    uv = as_dict(tool.get("uv"))
    for key in ("dev-dependencies", "override-dependencies"):
        for value in as_list(uv.get(key)):
            add(value)
    for values in as_dict(as_dict(tool.get("pdm")).get("dev-dependencies")).values():
        for value in as_list(values):
            add(value)
    sources = _uv_sources(uv)
    for row in as_list(uv.get("index")):
        entry = as_dict(row)
        url = entry.get("url")
        if isinstance(url, str):
            served = tuple(sorted(p for p, names in sources.items() if entry.get("name") in names))
            kind = "source" if entry.get("explicit") else ("index-url" if entry.get("default") else "extra-index-url")
            indexes.append(Index(url, kind, file, lines.find(url), served if kind == "source" else ()))  # type: ignore[arg-type]
    for key, index_kind in (
        ("index-url", "index-url"),
        ("extra-index-url", "extra-index-url"),
        ("find-links", "find-links"),
    ):
        values = uv.get(key)
        for url in [values] if isinstance(values, str) else as_list(values):
            if isinstance(url, str):
                indexes.append(Index(url, index_kind, file, lines.find(url)))  # type: ignore[arg-type]
    for row in as_list(as_dict(tool.get("pdm")).get("source")):
        url = as_dict(row).get("url")
        if isinstance(url, str):
            indexes.append(Index(url, "extra-index-url", file, lines.find(url)))
    poetry = as_dict(tool.get("poetry"))
    poetry_python = _poetry(poetry, file, lines, found, indexes, problems)
    conda, channels, pixi_python = _pixi(as_dict(tool.get("pixi")), file, lines, found)
    python = python or poetry_python or pixi_python
    return FileNeeds(
        kind="pyproject", file=file, requirements=tuple(found), conda=conda, channels=channels, python=_python(python),
        python_line=lines.find(python) if python else None, indexes=tuple(indexes), problems=tuple(problems),
        files=(file,), groups=tuple(groups), name=project.get("name") if isinstance(project.get("name"), str) else None,
    )  # fmt: skip


def _python(specifier: str | None) -> str | None:
    return python_of_specifier(caret(specifier)) if specifier else None


def _uv_sources(uv: dict[str, Any]) -> dict[str, set[str]]:
    """Package → names of the indexes it is taken from."""
    names: dict[str, set[str]] = {}
    for package, value in as_dict(uv.get("sources")).items():
        for row in value if isinstance(value, list) else [value]:
            index = as_dict(row).get("index")
            if isinstance(index, str):
                names.setdefault(canonicalize_name(package), set()).add(index)
    return names


def caret(version: str) -> str:
    """Poetry's ``^2.1`` → ``>=2.1,<3.0``, ``~2.1`` → ``>=2.1,<2.2``, bare ``2.1`` → ``==2.1``; others as they are."""
    version = version.strip()
    if version in {"", "*"}:
        return ""
    clauses = []
    for clause in re.split(r"\s*,\s*|\s+(?=[<>=!~^])", version):
        mark = re.match(r"^([\^~])\s*(\d+(?:\.\d+)*)(.*)$", clause)
        if mark and not clause.startswith("~="):
            parts = [int(p) for p in mark[2].split(".")]
            if mark[1] == "~":
                upper = [parts[0], parts[1] + 1] if len(parts) > 1 else [parts[0] + 1]
            else:
                significant = next((i for i, p in enumerate(parts) if p), len(parts) - 1)
                upper = [*parts[:significant], parts[significant] + 1]
            clauses.append(f">={mark[2]}{mark[3]},<{'.'.join(map(str, upper))}")
        elif re.match(r"^\d", clause):
            clauses.append(f"=={clause}")
        else:
            clauses.append(clause.replace(" ", ""))
    return ",".join(clauses)


def _poetry(
    poetry: dict[str, Any], file: str, lines: Lines, found: list[Requirement], indexes: list[Index],
    problems: list[Problem],
) -> str | None:  # fmt: skip
    tables = [as_dict(poetry.get("dependencies")), as_dict(poetry.get("dev-dependencies"))]
    tables += [as_dict(as_dict(g).get("dependencies")) for g in as_dict(poetry.get("group")).values()]
    python: str | None = None
    served: dict[str, set[str]] = {}
    for table in tables:
        for name, value in table.items():
            if name == "python" and isinstance(value, str):
                python = value
                continue
            for row in value if isinstance(value, list) else [value]:
                entry = as_dict(row)
                version = row if isinstance(row, str) else entry.get("version", "")
                url = entry.get("url") or entry.get("git") or entry.get("path")
                extras = ",".join(e for e in as_list(entry.get("extras")) if isinstance(e, str))
                text = name + (f"[{extras}]" if extras else "")
                text += f" @ {url}" if isinstance(url, str) else caret(version) if isinstance(version, str) else ""
                line = lines.find(f"{name} =") or lines.find(f'"{name}"') or lines.find(name)
                made = pip_requirement(text, file=file, line=line)
                if made is None:
                    problems.append(Problem(file, line, text, "is not a version Poetry takes"))
                else:
                    found.append(made)
                source = entry.get("source")
                if isinstance(source, str):
                    served.setdefault(source, set()).add(canonicalize_name(name))
    for row in as_list(poetry.get("source")):
        entry = as_dict(row)
        url = entry.get("url")
        if isinstance(url, str):
            explicit = entry.get("priority") == "explicit"
            names = tuple(sorted(served.get(str(entry.get("name")), ()))) if explicit else ()
            indexes.append(Index(url, "source" if explicit else "extra-index-url", file, lines.find(url), names))
    return python


def _pixi(
    pixi: dict[str, Any], file: str, lines: Lines, found: list[Requirement]
) -> tuple[tuple[Requirement, ...], tuple[tuple[str, int | None], ...], str | None]:
    workspace = as_dict(pixi.get("workspace")) or as_dict(pixi.get("project"))
    channels = tuple((c, lines.find(c)) for c in as_list(workspace.get("channels")) if isinstance(c, str))
    conda: list[Requirement] = []
    python: str | None = None
    for name, value in as_dict(pixi.get("dependencies")).items():
        version = value if isinstance(value, str) else as_dict(value).get("version", "")
        spec = "" if version in ("*", "") or not isinstance(version, str) else version
        text = f"{name} {spec}" if spec[:1] in "<>=!~" else f"{name}={spec}"
        made = conda_requirement(text.rstrip("= "), file=file, line=lines.find(f"{name} ="))
        if made is not None:
            conda.append(made)
            if name == "python":
                python = made.specifier or None
    for name, value in as_dict(pixi.get("pypi-dependencies")).items():
        version = value if isinstance(value, str) else as_dict(value).get("version", "")
        made = pip_requirement(
            f"{name}{caret(version) if isinstance(version, str) else ''}", file=file, line=lines.find(name)
        )
        if made is not None:
            found.append(made)
    return tuple(conda), channels, python
