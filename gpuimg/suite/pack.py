"""Zip the suite into one file that runs anywhere: the same bytes for the same source, on every machine."""

from __future__ import annotations

import hashlib
import io
import os
import sys
import zipfile
from pathlib import Path

PACKAGE = "gpuimg_suite"
"""Name of the package inside the zipapp."""
SUFFIXES = (".py", ".json", ".jsonl", ".ptx", ".bin", ".gz", ".zlib", ".csv", ".txt")
"""Files that belong to the suite."""
SHEBANG = b"#!/usr/bin/env python3\n"
MAIN = b"import sys\n\nfrom gpuimg_suite.cli import main\n\nsys.exit(main())\n"
STAMP = (1980, 1, 1, 0, 0, 0)


def source_files() -> list[tuple[str, bytes]]:
    """``(name inside the zip, content)`` of every file of the suite, sorted."""
    folder = Path(__file__).resolve().parent
    files = []
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        if path.is_file() and path.suffix in SUFFIXES and "__pycache__" not in relative.parts:
            files.append((PACKAGE + "/" + relative.as_posix(), path.read_bytes()))
    files.append(("__main__.py", MAIN))
    return sorted(files)


def zipapp_bytes() -> bytes:
    """The zipapp: sorted, fixed times and modes, so that its digest depends on the source alone."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in source_files():
            info = zipfile.ZipInfo(name, STAMP)
            info.compress_type = zipfile.ZIP_STORED  # compressors differ between machines, stored bytes do not
            info.create_system = 3
            info.external_attr = 0o100644 << 16
            archive.writestr(info, content)
    return SHEBANG + buffer.getvalue()


def source_digest() -> str:
    """``sha256:…`` of the zipapp that this source makes, without writing it."""
    return "sha256:" + hashlib.sha256(zipapp_bytes()).hexdigest()


def build_zipapp(path: str | os.PathLike[str]) -> str:
    """Write the zipapp to ``path`` (atomically, executable) and return its digest, ``sha256:…``.

    The digest is that of the file, so it is what the suite itself reports as ``suite_digest`` when it runs from it.
    Raises OSError when the file cannot be written.
    """
    content = zipapp_bytes()
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(target.name + ".part")
    temporary.write_bytes(content)
    temporary.chmod(0o755)
    os.replace(str(temporary), str(target))
    return "sha256:" + hashlib.sha256(content).hexdigest()


def main(argv: list[str]) -> int:
    """``python -m gpuimg.suite.pack FILE``: write the zipapp, print its digest."""
    if len(argv) != 1:
        print("usage: python -m gpuimg.suite.pack FILE", file=sys.stderr)
        return 2
    print(f"{argv[0]} {build_zipapp(argv[0])}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
