"""Matrix file → :class:`Matrix`; every error names file, line, what was found and what is allowed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from gpuimg.errors import BadInput
from gpuimg.matrix.schema import Matrix


def load_matrix(path: Path) -> Matrix:
    """Read and check a matrix file.

    Raises:
        BadInput: missing, not UTF-8, not YAML, duplicate or unknown keys, values that are not allowed.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        near = [p.name for p in sorted(path.parent.glob("*.y*ml"))] if path.parent.is_dir() else []
        raise BadInput(
            f"{path}: no such file", hint=f"matrix files there: {', '.join(near)}" if near else None
        ) from None
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: not UTF-8 text: {error.reason} at byte {error.start}") from None
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}") from None
    return parse_matrix(text, str(path))


def parse_matrix(text: str, file: str) -> Matrix:
    """As :func:`load_matrix`, from text; ``file`` is named in errors."""
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        raise BadInput.at(file, mark.line + 1 if mark else None, f"not YAML: {error.problem}") from None
    except yaml.YAMLError as error:
        raise BadInput(f"{file}: not YAML: {error}") from None
    if node is None:
        raise BadInput(f"{file}:1: the file is empty; it needs at least schema: gpuimg/v1 and images:")
    if not isinstance(node, yaml.MappingNode):
        raise BadInput.at(file, 1, "a matrix file is a mapping with schema: and images: at its top")
    _no_duplicates(node, file)
    try:
        document = yaml.safe_load(text)
        return Matrix.model_validate(document)
    except ValidationError as error:
        raise _explained(error, node, file) from None
    except yaml.YAMLError as error:
        raise BadInput(f"{file}: not YAML: {error}") from None


def line_of(text: str, place: Sequence[str | int]) -> int | None:
    """Line (from 1) of the value at ``place`` (keys and list positions), or of the nearest parent that exists."""
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    return _locate(node, place)[0]


def _explained(error: ValidationError, node: yaml.Node, file: str) -> BadInput:
    messages = []
    for problem in error.errors():
        place = tuple(part for part in problem["loc"] if isinstance(part, (str, int)))
        line, label = _locate(node, place)
        kind = problem["type"]
        if kind == "extra_forbidden":
            messages.append(
                BadInput.at(file, line, f"unknown key {place[-1]!r} in {label or 'the file'}",
                            allowed=_keys_at(place[:-1]), value=str(place[-1])).message
            )  # fmt: skip
        elif kind == "missing":
            messages.append(BadInput.at(file, line, f"{label or 'the file'} lacks the key {place[-1]!r}").message)
        elif kind == "literal_error":
            allowed = [part.strip(" '") for part in str(problem["ctx"]["expected"]).replace(" or ", ",").split(",")]
            found = problem["input"]
            what = f"{label} {found!r} is not known" if len(allowed) > 1 else f"{label} is {found!r}"
            messages.append(BadInput.at(file, line, what, allowed=allowed, value=str(found)).message)
        else:
            text = problem["msg"].removeprefix("Value error, ")
            messages.append(BadInput.at(file, line, f"{label}: {text[0].lower() + text[1:]}").message)
    return BadInput("\n".join(dict.fromkeys(messages)))


def _locate(node: yaml.Node | None, place: Sequence[str | int]) -> tuple[int | None, str]:
    label: list[str] = []
    line = node.start_mark.line + 1 if node is not None else None
    for part in place:
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                if key.value == str(part):
                    line, node = key.start_mark.line + 1, value
                    break
            else:
                break
            label.append(str(part))
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = node.start_mark.line + 1
            label.append(f"#{part + 1}")
        else:
            break
    return line, " ".join(label)


def _keys_at(place: Sequence[str | int]) -> list[str]:
    """Keys allowed where an unknown one was found."""
    model: Any = Matrix
    for part in place:
        if isinstance(part, int):
            continue
        field = next((f for n, f in model.model_fields.items() if (f.alias or n) == part), None)
        if field is None:
            return []
        found = [t for t in _types(field.annotation) if isinstance(t, type) and issubclass(t, BaseModel)]
        if not found:
            return []
        model = found[0]
    return [f.alias or n for n, f in model.model_fields.items()]


def _types(annotation: Any) -> list[Any]:
    inner = getattr(annotation, "__args__", ())
    return [annotation, *(t for a in inner for t in _types(a))]


def _no_duplicates(node: yaml.Node, file: str) -> None:
    if isinstance(node, yaml.MappingNode):
        seen: dict[str, int] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if key.value in seen:
                raise BadInput.at(file, line, f"the key {key.value!r} stands here and on line {seen[key.value]}")
            seen[key.value] = line
            _no_duplicates(value, file)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _no_duplicates(item, file)
