"""One file of any kind → FileNeeds, for the kinds that list packages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gpuimg.errors import BadInput
from gpuimg.project.conda import parse_environment
from gpuimg.project.detect import Kind, kind_of
from gpuimg.project.entries import FileNeeds
from gpuimg.project.locks import parse_pipfile, parse_pipfile_lock, parse_toml_lock
from gpuimg.project.pyproject import parse_pyproject
from gpuimg.project.requirements import parse_requirements
from gpuimg.project.setup_files import parse_setup_cfg, parse_setup_py
from gpuimg.project.text import read_text

PARSERS: dict[Kind, Callable[[str, str], FileNeeds]] = {
    "pyproject": parse_pyproject,
    "toml-lock": parse_toml_lock,
    "pipfile": parse_pipfile,
    "pipfile-lock": parse_pipfile_lock,
    "setup-cfg": parse_setup_cfg,
    "setup-py": parse_setup_py,
}
PACKAGE_LISTS = (
    "requirements.txt",
    "environment.yml",
    "pyproject.toml",
    "uv.lock",
    "poetry.lock",
    "Pipfile",
    "setup.cfg",
    "setup.py",
)


def parse_package_file(text: str, file: str, kind: Kind, *, folder: Path | None = None) -> FileNeeds:
    """What a file of a known kind asks for. Raises BadInput when it is not of that kind after all."""
    if kind == "requirements":
        seen = frozenset({(folder / Path(file).name).resolve()}) if folder is not None else frozenset()
        return parse_requirements(text, file, folder=folder, _seen=seen)
    if kind == "conda":
        return parse_environment(text, file, folder=folder)
    parser = PARSERS.get(kind)
    if parser is None:
        raise BadInput.at(file, None, "lists no packages that can be read here", allowed=PACKAGE_LISTS)
    return parser(text, file)


def read_package_file(path: Path) -> FileNeeds:
    """As ``parse_package_file``, from disk; the kind is found by name and content."""
    text = read_text(path)
    kind = kind_of(path.name, text)
    if kind == "unknown" and not text.strip():
        kind = "requirements"
    return parse_package_file(text, str(path), kind, folder=path.parent)
