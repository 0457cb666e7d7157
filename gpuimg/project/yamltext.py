"""YAML with line numbers: the node tree of PyYAML, read with the safe loader, walked by small helpers."""

from __future__ import annotations

from collections.abc import Iterator

import yaml

from gpuimg.errors import BadInput

Node = yaml.Node
_LIMIT = 20_000
"""Nodes: aliases could make a small file huge."""


def parse_yaml(text: str, file: str) -> Node | None:
    """The document's root node, None when empty. Raises BadInput with file and line for what is no YAML."""
    cleaned = "".join(c for c in text if c in "\t\n" or c >= " ").replace("\ufffe", "").replace("\uffff", "")
    try:
        documents = [d for d in yaml.compose_all(cleaned, Loader=yaml.SafeLoader) if d is not None]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise BadInput.at(
            file, mark.line + 1 if mark else None, f"is not YAML: {error.problem or error.context}"
        ) from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise BadInput.at(file, None, f"is not YAML: {str(error).splitlines()[0]}") from error
    return documents[0] if documents else None


def line_of(node: Node) -> int:
    """1-based."""
    return int(node.start_mark.line) + 1


def items(node: Node | None) -> Iterator[tuple[str, Node, Node]]:
    """(key, key node, value node) of a mapping, merge keys (``<<``) resolved; nothing for other nodes."""
    yield from _items(node, 0)


def _items(node: Node | None, depth: int) -> Iterator[tuple[str, Node, Node]]:
    if not isinstance(node, yaml.MappingNode) or depth > 20:
        return
    own = {k.value for k, _ in node.value if isinstance(k, yaml.ScalarNode)}
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            continue
        if key.value == "<<":
            merged = value.value if isinstance(value, yaml.SequenceNode) else [value]
            for one in merged:
                yield from ((k, kn, v) for k, kn, v in _items(one, depth + 1) if k not in own)
        else:
            yield str(key.value), key, value


def get(node: Node | None, *path: str) -> Node | None:
    """The node at a path of keys, None when it is not there."""
    for key in path:
        node = next((value for name, _, value in items(node) if name == key), None)
        if node is None:
            return None
    return node


def elements(node: Node | None) -> list[Node]:
    """Elements of a sequence; a scalar counts as one element; nothing for other nodes."""
    if isinstance(node, yaml.SequenceNode):
        return list(node.value)[:_LIMIT]
    if isinstance(node, yaml.ScalarNode) and not is_null(node):
        return [node]
    return []


def scalar(node: Node | None) -> str | None:
    """Text of a scalar as written, None for null and other nodes."""
    if isinstance(node, yaml.ScalarNode) and not is_null(node):
        return str(node.value)
    return None


def is_null(node: Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null"


def is_mapping(node: Node | None) -> bool:
    return isinstance(node, yaml.MappingNode)


def is_sequence(node: Node | None) -> bool:
    return isinstance(node, yaml.SequenceNode)
