"""requirements.txt as pip reads it: includes, constraints, indexes, hashes, markers, URLs, wheels, continued lines."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from gpuimg.nouns import Requirement
from gpuimg.project.entries import FileNeeds, Index, IndexKind, Problem, pip_requirement
from gpuimg.project.text import read_text

_INDEX: dict[str, IndexKind] = {
    "-i": "index-url",
    "--index-url": "index-url",
    "--pypi-url": "index-url",
    "--extra-index-url": "extra-index-url",
    "-f": "find-links",
    "--find-links": "find-links",
}
_WITH_VALUE = {"--no-binary", "--only-binary", "--trusted-host", "--use-feature", "--no-build-isolation-package"}
_PER_LINE = re.compile(r"\s(?:--hash|--global-option|--install-option|--config-settings?)(?:[=\s]\s*\S+)")


def logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """(line number of the start, text) with continuations joined and comments removed, as pip does."""
    start = 0
    parts: list[str] = []
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.rstrip()
        comment = bool(re.match(r"^\s*#", stripped))
        if not parts:
            start = number
        if stripped.endswith("\\") and not comment:
            parts.append(stripped[:-1])
            continue
        if comment and parts:
            continue
        parts.append(stripped)
        joined = " ".join(p.strip() for p in parts).strip()
        parts = []
        joined = re.sub(r"(^|\s)#.*$", "", joined).strip()
        if joined:
            yield start, joined
    if parts:
        joined = re.sub(r"(^|\s)#.*$", "", " ".join(p.strip() for p in parts)).strip()
        if joined:
            yield start, joined


def parse_requirements(
    text: str, file: str, *, folder: Path | None = None, _seen: frozenset[Path] = frozenset()
) -> FileNeeds:
    """What a requirements file asks for. With ``folder``, -r and -c includes are read relative to it.

    Lines pip would refuse become problems, never exceptions; an include that is missing is a problem too.
    """
    requirements: list[Requirement] = []
    constraints: list[Requirement] = []
    indexes: list[Index] = []
    options: list[tuple[str, str, int | None]] = []
    problems: list[Problem] = []
    files = [file]
    for line, content in logical_lines(text):
        if content.startswith("-"):
            for name, value in _options(content):
                kind = _INDEX.get(name)
                if kind is not None:
                    indexes.append(Index(value, kind, file, line))
                elif name in {"-r", "--requirement", "-c", "--constraint"}:
                    inner = _include(value, file, line, folder, _seen, problems)
                    if inner is None:
                        continue
                    files.extend(inner.files)
                    if name in {"-r", "--requirement"}:
                        requirements.extend(inner.requirements)
                        constraints.extend(inner.constraints)
                    else:
                        constraints.extend((*inner.requirements, *inner.constraints))
                    indexes.extend(inner.indexes)
                    options.extend(inner.options)
                    problems.extend(inner.problems)
                elif name in {"-e", "--editable"}:
                    made = pip_requirement(value, file=file, line=line)
                    if made is not None:
                        requirements.append(made)
                    options.append(("-e", value, line))
                else:
                    options.append((name, value, line))
            continue
        plain = _PER_LINE.sub("", f" {content}").strip()
        trailing = re.search(r"\s(--?(?:index-url|extra-index-url|find-links|i|f))[=\s]+(\S+)", f" {plain}")
        if trailing:
            problems.append(
                Problem(file, line, content, f"{trailing[1]} needs a line of its own in a requirements file")
            )
            indexes.append(Index(trailing[2], _INDEX[trailing[1]], file, line))
            plain = plain.split(trailing[1])[0].strip()
        made = pip_requirement(plain, file=file, line=line)
        if made is not None:
            requirements.append(made)
        elif plain not in {".", ".."} and not re.match(
            r"^\.?\.?/|^\.\[|^~|^\$\{?\w|^[\w.-]+(/[\w.-]+)+/?(\[[\w,-]+\])?$", plain
        ):
            problems.append(Problem(file, line, content, _why(plain)))
    return FileNeeds(
        kind="requirements", file=file, requirements=tuple(requirements), constraints=tuple(constraints),
        indexes=tuple(indexes), options=tuple(options), problems=tuple(problems), files=tuple(dict.fromkeys(files)),
    )  # fmt: skip


def _include(
    value: str, file: str, line: int, folder: Path | None, seen: frozenset[Path], problems: list[Problem]
) -> FileNeeds | None:
    if folder is None or "://" in value or not value:
        return None
    path = folder / value
    try:
        resolved = path.resolve()
        exists = path.is_file()
    except (OSError, ValueError):
        exists = False
        resolved = path
    if resolved in seen:
        return None
    if not exists:
        problems.append(Problem(file, line, value, f"the file {value} it includes is not there"))
        return None
    name = value if Path(file).parent == Path(".") else str(Path(file).parent / value)
    return parse_requirements(read_text(path), name, folder=path.parent, _seen=seen | {resolved})


def _options(content: str) -> Iterator[tuple[str, str]]:
    """Options of one line: ``--index-url=URL``, ``-i URL``, ``-rfile``, ``--pre``."""
    try:
        words = shlex.split(content)
    except ValueError:
        words = content.split()
    position = 0
    while position < len(words):
        word = words[position]
        position += 1
        if not word.startswith("-"):
            continue
        name, equals, value = word.partition("=")
        short = re.match(r"^(-[ircef])(.+)$", word) if not word.startswith("--") else None
        if short:
            name, equals, value = short[1], "=", short[2].lstrip("=")
        takes = name in _INDEX or name in _WITH_VALUE or name in {
            "-r", "--requirement", "-c", "--constraint", "-e", "--editable"
        }  # fmt: skip
        if not equals and takes and position < len(words):
            value = words[position]
            position += 1
        yield name, value


def _why(text: str) -> str:
    if re.match(r"^[\w.-]+\s*=\s*[\w.]", text) and "==" not in text:
        return "one '=' is conda's way of pinning; pip wants '=='"
    if re.match(r"^pip3?\s+install\b", text) or re.match(r"^(conda|apt|apt-get)\s", text):
        return "this is a command, not a requirement"
    if re.match(r"^[\w.-]+\s+v?\d", text):
        return "name and version need '==' between them"
    if re.search(r"^<{7}|^={7}|^>{7}", text):
        return "a merge conflict was left in the file"
    if " @ " in text and "file:///" in text:
        return "a path of the machine where it was frozen"
    return "pip cannot read this line"


def read_requirements(path: Path) -> FileNeeds:
    """As ``parse_requirements``, from disk with its includes. Raises BadInput when a file cannot be read."""
    try:
        seen = frozenset({path.resolve()})
    except (OSError, ValueError):
        seen = frozenset()
    return parse_requirements(read_text(path), str(path), folder=path.parent, _seen=seen)
