"""Which format a file is, by its name and, where that does not say, by its content."""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import Literal

Kind = Literal[
    "dockerfile", "requirements", "conda", "pyproject", "toml-lock", "pipfile", "pipfile-lock", "setup-cfg", "setup-py",
    "compose", "matrix", "unknown",
]  # fmt: skip

_NAMES: tuple[tuple[str, Kind], ...] = (
    (r"(.*[._-])?(dockerfile|containerfile)([._-].*)?", "dockerfile"),
    (r"pyproject\.toml|.*\.pyproject\.toml|pixi\.toml", "pyproject"),
    (r"(.*\.)?(uv|poetry|pdm)\.lock|pylock(\..+)?\.toml", "toml-lock"),
    (r"(.*\.)?pipfile", "pipfile"),
    (r"(.*\.)?pipfile\.lock", "pipfile-lock"),
    (r"(.*\.)?setup\.cfg", "setup-cfg"),
    (r"(.*\.)?setup\.py", "setup-py"),
    (r"(.*[._-])?(docker-)?compose([._-].*)?\.ya?ml", "compose"),
    (r"(.*[._-])?environment([._-].*)?\.ya?ml|(.*[._-])?conda([._-].*)?\.ya?ml|env\.ya?ml", "conda"),
    (r"(.*[._-])?(requirements?|constraints?)([._-].*)?\.(txt|in)", "requirements"),
)


def kind_of(name: str, text: str) -> Kind:
    """The format. ``unknown`` when neither the name nor the content says; the content wins for YAML files."""
    base = PurePath(name).name.lower()
    named: Kind = next((kind for pattern, kind in _NAMES if re.fullmatch(pattern, base)), "unknown")
    if base.endswith((".yml", ".yaml")):
        content = _yaml_kind(text)
        return content if content != "unknown" else named
    if named == "dockerfile" and base.endswith((".txt", ".md", ".py", ".sh", ".json", ".toml")):
        return _by_content(text)
    if named != "unknown":
        return named
    return _by_content(text)


def _yaml_kind(text: str) -> Kind:
    if re.search(r"(?m)^(schema:\s*gpuimg/|images:)", text):
        return "matrix"
    if re.search(r"(?m)^services:", text):
        return "compose"
    if re.search(r"(?m)^(dependencies|channels):", text):
        return "conda"
    if re.search(r"(?m)^[\w-]+:\s*\n\s+(image|build):", text):
        return "compose"
    return "unknown"


def _by_content(text: str) -> Kind:
    lines = [line.strip() for line in text.split("\n") if line.strip() and not line.lstrip().startswith("#")]
    if not lines:
        return "unknown"
    starts = re.match(r"(?i)^(from\s+[\w./:${}-]+|arg\s+\w+)", lines[0])
    if starts and re.search(r"(?im)^\s*from\s+\S+", text) and not re.search(r"(?m)^from\s+\S+\s+import\s", text):
        return "dockerfile"
    if re.search(r"(?m)^\[(project|build-system|tool\.[\w.-]+|dependency-groups)\]", text):
        return "pyproject"
    if re.search(r"(?m)^\[\[packages?\]\]", text):
        return "toml-lock"
    if re.search(r"(?m)^\[(packages|dev-packages)\]", text):
        return "pipfile"
    if re.search(r"(?m)^\[(options|metadata)\]", text):
        return "setup-cfg"
    yaml_kind = _yaml_kind(text)
    if yaml_kind != "unknown":
        return yaml_kind
    fitting = sum(
        1
        for line in lines
        if re.match(r"^(-{1,2}[a-z]|[A-Za-z0-9][\w.-]*(\[[\w,\s-]*\])?\s*(==|>=|<=|~=|!=|<|>|@|;|$|#|\\))", line)
    )
    if fitting >= max(1, (len(lines) * 2) // 3):
        return "requirements"
    return "unknown"
