"""The files of a project: environments, caches and version control left out, nothing followed out of the folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gpuimg.errors import BadInput

SKIPPED = {
    ".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", "venv", "env", ".env", ".tox", ".nox", ".mypy_cache",
    ".pytest_cache", ".ruff_cache", "site-packages", ".idea", ".vscode", ".eggs", "build", "dist", ".ipynb_checkpoints", "wandb",
}  # fmt: skip
LIMIT = 200_000
"""Files. A data set beside the code must not make a scan endless."""


@dataclass(frozen=True)
class Entry:
    """One file; ``name`` is relative to the folder, with slashes."""

    path: Path
    name: str
    size: int
    symlink_to: str | None


def walk(folder: Path) -> Iterator[Entry]:
    """Files under a folder in sorted order. Raises BadInput when it is no folder that can be read."""
    if not folder.is_dir():
        raise BadInput.at(str(folder), None, "is no folder")
    if not os.access(folder, os.R_OK | os.X_OK):
        raise BadInput.at(str(folder), None, "cannot be read")
    count = 0
    for root, folders, files in os.walk(folder, followlinks=False):
        linked = [f for f in folders if os.path.islink(os.path.join(root, f))]
        folders[:] = sorted(f for f in folders if f not in SKIPPED and f not in linked and not _is_environment(root, f))
        for file in sorted([*files, *linked]):
            count += 1
            if count > LIMIT:
                return
            path = Path(root) / file
            try:
                size = path.lstat().st_size
                target = os.readlink(path) if path.is_symlink() else None
            except OSError:
                continue
            yield Entry(path, path.relative_to(folder).as_posix(), size, target)


def _is_environment(root: str, name: str) -> bool:
    return os.path.isfile(os.path.join(root, name, "pyvenv.cfg")) or os.path.isdir(
        os.path.join(root, name, "conda-meta")
    )
