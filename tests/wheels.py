"""Small wheels for tests, made on the spot."""

from __future__ import annotations

import hashlib
import random
import zipfile
from pathlib import Path


def make_wheel(folder: Path, name: str = "demo", files: dict[str, bytes] | None = None, *, seed: int = 0) -> Path:
    """A small wheel with code, data, a script, an entry point and a large member."""
    noise = random.Random(seed).randbytes(300_000)
    content = {
        f"{name}/__init__.py": b"def main():\n    return 0\n",
        f"{name}/native.so": noise,
        f"{name}-1.0.data/scripts/tool.sh": b"#!python -u\nprint('x')\n",
        f"{name}-1.0.data/data/share/{name}.txt": b"data",
        f"{name}-1.0.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n".encode(),
        f"{name}-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{name}-1.0.dist-info/entry_points.txt": f"[console_scripts]\n{name}-run = {name}:main\n".encode(),
        **(files or {}),
    }
    record = "".join(
        f"{path},sha256={hashlib.sha256(data).hexdigest()},{len(data)}\n" for path, data in content.items()
    )
    content[f"{name}-1.0.dist-info/RECORD"] = (record + f"{name}-1.0.dist-info/RECORD,,\n").encode()
    wheel = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in content.items():
            archive.writestr(path, data)
    return wheel
