"""Matrix file → :class:`Matrix`; every error names file, line, what was found and what is allowed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from gpuimg.errors import BadInput
from gpuimg.matrix.schema import Matrix

REGISTRY = re.compile(r"[A-Za-z0-9.-]+(:\d+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*")
"""Host and path as https://github.com/distribution/reference writes them."""
MAX_DEPTH = 20
MAX_BYTES = 1 << 20
"""Of a matrix file; real ones have a few kilobytes."""
MAX_NODES = 20_000
"""Values after aliases are followed: a few lines of aliases to aliases can stand for billions."""


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
    if len(text) > MAX_BYTES:
        raise BadInput(f"{file}: {len(text)} characters; a matrix file has at most {MAX_BYTES}")
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except RecursionError:
        raise BadInput(f"{file}: not YAML: nested too deep") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        raise BadInput.at(file, mark.line + 1 if mark else None, f"not YAML: {error.problem}") from None
    except yaml.YAMLError as error:
        raise BadInput(f"{file}: not YAML: {error}") from None
    if node is None:
        raise BadInput(f"{file}:1: the file is empty; it needs at least schema: gpuimg/v1 and images:")
    if not isinstance(node, yaml.MappingNode):
        raise BadInput.at(file, 1, "a matrix file is a mapping with schema: and images: at its top")
    _check_nodes(node, file, set())
    if _size(node, {}) > MAX_NODES:
        raise BadInput(f"{file}: its aliases stand for more than {MAX_NODES} values")
    try:
        document = yaml.safe_load(text)
        matrix = Matrix.model_validate(document)
    except ValidationError as error:
        raise _explained(error, node, file) from None
    except (yaml.YAMLError, ValueError, TypeError) as error:  # '1: 2024-13-45' fails while YAML makes a date of it
        raise BadInput(f"{file}: not YAML: {error}") from None
    _check_registry(matrix, node, file)
    return matrix


def _check_registry(matrix: Matrix, node: yaml.Node, file: str) -> None:
    text = matrix.registry
    if not REGISTRY.fullmatch(text.rstrip("/")):
        raise BadInput.at(
            file, _locate(node, ("registry",))[0],
            f"registry {text!r} is no HOST[:PORT]/PATH in lower case, without https://; "
            "such as registry.example.com/team",
        )  # fmt: skip


def line_of(text: str, place: Sequence[str | int]) -> int | None:
    """Line (from 1) of the value at ``place`` (keys and list positions), or of the nearest parent that exists."""
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    return _locate(node, place)[0]


_WORDS = {
    "string_type": "text in quotes",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}
"""pydantic's kinds of error, in words for people who write YAML."""


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
        elif kind == "too_short":
            messages.append(BadInput.at(file, line, f"{label} is an empty list; it needs one value at least").message)
        elif kind in _WORDS:
            found = problem["input"]
            shown = "nothing" if found is None else f"{found!r}"
            messages.append(
                BadInput.at(file, line, f"{label or 'the file'} must be {_WORDS[kind]}, not {shown}").message
            )
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


def _size(node: yaml.Node, known: dict[int, int]) -> int:
    """Values below a node with aliases followed (no cycles: checked before)."""
    if id(node) not in known:
        below: list[yaml.Node] = []
        if isinstance(node, yaml.MappingNode):
            below = [part for pair in node.value for part in pair]
        elif isinstance(node, yaml.SequenceNode):
            below = node.value
        known[id(node)] = 1 + sum(_size(part, known) for part in below)
    return known[id(node)]


def _check_nodes(node: yaml.Node, file: str, done: set[int], above: tuple[int, ...] = ()) -> None:
    """Refuse what YAML allows and a matrix file has no use for: duplicate or compound keys, values within themselves."""
    if id(node) in above:
        raise BadInput.at(file, node.start_mark.line + 1, "a value that contains itself")
    if len(above) > MAX_DEPTH:
        raise BadInput.at(file, node.start_mark.line + 1, f"nested more than {MAX_DEPTH} deep")
    if id(node) in done:
        return
    done.add(id(node))
    here = (*above, id(node))
    if isinstance(node, yaml.MappingNode):
        seen: dict[str, int] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                raise BadInput.at(file, line, "a key that is a list or mapping; keys are words")
            if key.value in seen:
                raise BadInput.at(file, line, f"the key {key.value!r} stands here and on line {seen[key.value]}")
            seen[key.value] = line
            _check_nodes(value, file, done, here)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _check_nodes(item, file, done, here)
