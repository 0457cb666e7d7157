"""A streamed layer holds, file for file, what ``uv pip install`` puts on disk."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import requests
from uv import find_uv_bin

from gpuimg.layers.fetch import fetch_wheel
from gpuimg.layers.lockfile import Platform, read_lock
from gpuimg.layers.resolve import lock_requirements
from gpuimg.layers.wheel_tar import Environment, LayerTar, write_wheel

pytestmark = pytest.mark.integration

# scripts with and without a shebang, .data schemes, a .pth file, namespace packages, extension modules, stale bytecode
PACKAGES = ["numpy==2.2.0", "uv==0.5.0", "requests==2.32.3", "jupyterlab-widgets==3.0.13", "setuptools==75.6.0"]
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
PLATFORM = Platform(PYTHON, "2.36")


def tree(root: Path) -> dict[str, tuple[int, bytes]]:
    """Path → (permission bits, content); bytecode and the environment's own files left out."""
    found = {}
    for folder, _, files in os.walk(root):
        for file in files:
            path = Path(folder, file)
            name = path.relative_to(root).as_posix()
            if "__pycache__" in name or name == ".lock" or path.is_symlink():
                continue
            data = path.read_bytes()
            if name.endswith(".dist-info/RECORD"):
                data = b"\n".join(sorted(row for row in data.splitlines() if b"__pycache__" not in row))
            found[name] = (stat.S_IMODE(path.stat().st_mode) & 0o777, data)
    return found


def test_streamed_files_equal_installed_files(tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    lock = read_lock(lock_requirements(PACKAGES, PLATFORM), PLATFORM)
    subprocess.run([find_uv_bin(), "venv", "-q", "--no-config", str(venv), "--python", sys.executable], check=True)
    empty = set(tree(venv))
    subprocess.run(
        [find_uv_bin(), "pip", "install", "-q", "--no-config", "--no-deps", "--python", str(venv / "bin/python")]
        + [f"{wheel.name}=={wheel.version}" for wheel in lock],
        check=True,
    )
    installed = {name: entry for name, entry in tree(venv).items() if name not in empty}

    session = requests.Session()
    with open(tmp_path / "layer.tar", "wb") as out:
        tar = LayerTar(out.write)
        for wheel in lock:
            write_wheel(fetch_wheel(wheel, tmp_path / "wheels", session), tar, Environment(str(venv), PYTHON))
        tar.close()
    with tarfile.open(tmp_path / "layer.tar") as layer:
        layer.extractall(tmp_path / "streamed", filter="fully_trusted")
    streamed = tree(Path(f"{tmp_path}/streamed{venv}"))

    assert sorted(streamed) == sorted(installed)
    different = [name for name in installed if installed[name] != streamed[name]]
    assert different == []
