"""setup.cfg and setup.py, read without running anything."""

from __future__ import annotations

import ast
import configparser

from gpuimg.errors import BadInput
from gpuimg.nouns import Requirement
from gpuimg.project.conda import python_of_specifier
from gpuimg.project.entries import FileNeeds, Problem, pip_requirement
from gpuimg.project.tomltext import Lines


def parse_setup_cfg(text: str, file: str) -> FileNeeds:
    """install_requires and extras of setup.cfg. Raises BadInput when it cannot be read as an INI file."""
    parser = configparser.RawConfigParser(strict=False, allow_no_value=True)
    try:
        parser.read_string(text, source=file)
    except configparser.MissingSectionHeaderError as error:
        raise BadInput.at(file, error.lineno, "is not an INI file: no section header") from error
    except configparser.ParsingError as error:
        line = error.errors[0][0] if error.errors else None
        raise BadInput.at(file, line, "is not an INI file: this line is neither a section nor a key") from error
    except configparser.Error as error:
        raise BadInput.at(file, None, f"is not an INI file: {error.message}") from error
    lines = Lines(text)
    found: list[Requirement] = []
    problems: list[Problem] = []
    blocks: list[tuple[str, str | None]] = []
    groups: list[tuple[str, tuple[Requirement, ...]]] = []
    if parser.has_option("options", "install_requires"):
        blocks.append(("", parser.get("options", "install_requires")))
    if parser.has_section("options.extras_require"):
        blocks += list(parser.items("options.extras_require"))
    for extra, block in blocks:
        before = len(found)
        for entry in (block or "").replace(";;", ";").split("\n"):
            value = entry.split(" #")[0].strip()
            if not value or value.startswith("#"):
                continue
            line = lines.find(value)
            made = pip_requirement(value, file=file, line=line)
            if made is None:
                problems.append(Problem(file, line, value, "is not a PEP 508 requirement"))
            else:
                found.append(made)
        if extra:
            groups.append((extra, tuple(found[before:])))
    python = parser.get("options", "python_requires", fallback=None)
    return FileNeeds(
        kind="setup", file=file, requirements=tuple(found), problems=tuple(problems), files=(file,), groups=tuple(groups),
        python=python_of_specifier(python.strip()) if python else None,
    )  # fmt: skip


def parse_setup_py(text: str, file: str) -> FileNeeds:
    """Literal install_requires, extras_require and python_requires of setup.py; names that hold literals are followed.

    What is computed (read from files, joined at run time) is not guessed. Raises BadInput when it is no Python.
    """
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise BadInput.at(file, error.lineno, f"is not Python 3: {error.msg}") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise BadInput.at(file, None, f"is not Python 3: {error}") from error
    names: dict[str, ast.expr] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    names[target.id] = node.value
    found: list[Requirement] = []
    problems: list[Problem] = []
    groups: list[tuple[str, tuple[Requirement, ...]]] = []
    python: str | None = None

    def texts(node: ast.expr | None, depth: int = 0) -> list[tuple[str, int]]:
        if node is None or depth > 8:
            return []
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return [(part, node.lineno) for part in node.value.split("\n")]
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            return [pair for item in node.elts for pair in texts(item, depth + 1)]
        if isinstance(node, ast.Dict):
            return [pair for item in node.values for pair in texts(item, depth + 1)]
        if isinstance(node, ast.BinOp):
            return texts(node.left, depth + 1) + texts(node.right, depth + 1)
        if isinstance(node, ast.Name):
            return texts(names.get(node.id), depth + 1)
        return []

    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if called != "setup":
            continue
        for keyword in node.keywords:
            if keyword.arg in {"install_requires", "extras_require", "setup_requires"}:
                before = len(found)
                for value, line in texts(keyword.value):
                    if not value.strip():
                        continue
                    made = pip_requirement(value, file=file, line=line)
                    if made is None:
                        problems.append(Problem(file, line, value, "is not a PEP 508 requirement"))
                    else:
                        found.append(made)
                if keyword.arg != "install_requires":
                    groups.extend((keyword.arg or "", (one,)) for one in found[before:])
            elif keyword.arg == "python_requires" and isinstance(keyword.value, ast.Constant):
                python = str(keyword.value.value)
    return FileNeeds(
        kind="setup", file=file, requirements=tuple(found), problems=tuple(problems), files=(file,), groups=tuple(groups),
        python=python_of_specifier(python) if python else None,
    )  # fmt: skip
