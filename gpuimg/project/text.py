"""Bytes of a project's file → text, however it was saved; files that are not text are refused by name."""

from __future__ import annotations

import codecs
from pathlib import Path

from gpuimg.errors import BadInput

LIMIT = 32 * 1024 * 1024
"""Bytes. A lock file of a large project is a few MiB; anything bigger is not a file of this kind."""

_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def decode(data: bytes, name: str) -> str:
    """Text of a file: UTF-8, or what its byte order mark says (PowerShell's ``>`` writes UTF-16), else GBK or Latin-1.

    Line ends become ``\\n``. Raises BadInput for bytes that are no text.
    """
    for mark, codec in _BOMS:
        if data.startswith(mark):
            try:
                return _plain(data.decode(codec))
            except UnicodeDecodeError as error:
                raise BadInput.at(name, None, f"starts like {codec} but is not: {error.reason}") from error
    if b"\0" in data[:8192]:
        line = data[: data.index(b"\0")].count(b"\n") + 1
        raise BadInput.at(name, line, "is binary, not a text file")
    for codec in ("utf-8", "gb18030", "latin-1"):
        try:
            return _plain(data.decode(codec))
        except UnicodeDecodeError:
            continue
    raise BadInput.at(name, None, "is not text in any encoding known here")  # pragma: no cover - latin-1 takes all


def _plain(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_text(path: Path) -> str:
    """The file's text. Raises BadInput when it is missing, unreadable, a folder, too large or binary."""
    try:
        if path.is_dir():
            raise BadInput.at(str(path), None, "is a folder, not a file")
        size = path.stat().st_size
        if size > LIMIT:
            raise BadInput.at(str(path), None, f"has {size} bytes: too large for a requirements or build file")
        data = path.read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise BadInput.at(str(path), None, f"cannot be read: {reason}") from error
    return decode(data, str(path))
