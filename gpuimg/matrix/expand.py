"""Matrix → cells: lists multiplied out, defaults filled in, excluded ones set aside with their reason."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gpuimg.errors import BadInput
from gpuimg.knowledge import load
from gpuimg.matrix.load import line_of
from gpuimg.matrix.schema import Image, Matrix
from gpuimg.nouns import Cell


@dataclass(frozen=True)
class Expanded:
    """``cells`` to build, in file order; ``excluded`` ones with the reason the file gives.

    ``with_gpu`` are wanted only where the engine reaches a GPU; ``notes`` say what in the file has no effect.
    """

    cells: tuple[Cell, ...]
    excluded: tuple[tuple[Cell, str], ...]
    with_gpu: tuple[Cell, ...] = ()
    notes: tuple[str, ...] = ()


def expand(matrix: Matrix, file: Path, *, os_python: Callable[[str], str | None] | None = None) -> Expanded:
    """Cells of a matrix. ``os_python`` gives the Python of a distribution ('ubuntu22.04' → '3.10').

    Raises:
        BadInput: two rows ask for the same cell, a Python is asked for that nothing says, or all cells are excluded.
    """
    python_of = os_python or load().python_of_os
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    cells: list[Cell] = []
    excluded: list[tuple[Cell, str]] = []
    with_gpu: list[Cell] = []
    used: set[int] = set()
    seen: dict[str, int | None] = {}
    for number, image in enumerate(matrix.images):
        line = line_of(text, ("images", number)) if text else None
        for cell in _cells_of(image, matrix, str(file), line, python_of):
            if cell.id in seen:
                raise BadInput.at(str(file), line, f"cell {cell.id} is asked for twice (first on line {seen[cell.id]})")
            seen[cell.id] = line
            matching = [
                i for i, e in enumerate(matrix.exclude) if _matches(cell, {str(k): v for k, v in e.when.items()})
            ]
            used.update(matching)
            if matching:
                excluded.append((cell, matrix.exclude[matching[0]].reason))
            elif image.only_with == "gpu":
                with_gpu.append(cell)
            else:
                cells.append(cell)
    if not cells and not with_gpu:
        raise BadInput(f"{file}: nothing to build: every cell is excluded")
    notes = [
        f"{file}:{line_of(text, ('exclude', i))}: this exclusion matches no cell"
        for i in range(len(matrix.exclude))
        if i not in used
    ]
    return Expanded(tuple(cells), tuple(excluded), tuple(with_gpu), tuple(notes))


def _cells_of(
    image: Image, matrix: Matrix, file: str, line: int | None, python_of: Callable[[str], str | None]
) -> list[Cell]:
    defaults = matrix.defaults
    device = image.device or ("cuda" if image.only_with == "gpu" else defaults.device)
    cudas: list[str | None] = [None] if device == "cpu" else list(image.cuda)
    out = []
    for version, cuda, os in itertools.product(image.version, cudas, image.os or [defaults.os]):
        own = python_of(os)
        pythons: list[str | None] = [*image.python] if image.python else [defaults.python]
        for asked in pythons:
            python = asked or own
            if python is None or own is None:
                raise BadInput.at(file, line, f"the distribution {os!r} is not known", allowed=load().oses, value=os)
            if python.count(".") != 1:
                raise BadInput.at(file, line, f"python {python!r} is no minor version such as '3.11'")
            out.append(
                Cell(
                    id=cell_id(image.framework, version, device, cuda, python, os),
                    framework=image.framework,
                    version=version,
                    device=device,
                    cuda=cuda,
                    cudnn=None if device == "cpu" else image.cudnn,
                    python=python,
                    os=os,
                    profile=image.profile or defaults.profile,
                    packages=(*defaults.packages, *image.packages),
                    file=file,
                    line=line,
                )
            )
    return out


def cell_id(framework: str, version: str, device: str, cuda: str | None, python: str, os: str) -> str:
    """'torch2.6.0-cu124-py311-debian12': names the cell's folder and begins its tag."""
    part = "cpu" if device == "cpu" else "cu" + (cuda or "auto").replace(".", "")
    text = f"{framework}{version}-{part}-py{python.replace('.', '')}-{os}"
    return re.sub(r"[^A-Za-z0-9_.-]", "-", text)


def _matches(cell: Cell, when: dict[str, str]) -> bool:
    return all(getattr(cell, key) == value for key, value in when.items())
