"""A wheel as the tar of an image layer: the files that ``uv pip install`` would put into a virtual environment.

The tar depends on the wheel, the environment's path and the Python version alone: no owner, no time, no order of the
machine gets in, so the same wheel gives the same layer digest on any builder.

PyPA's ``installer`` knows how a wheel is laid out (``.data`` schemes, entry points, RECORD); it is given a
destination that writes into a tar.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import os
import posixpath
import struct
import tarfile
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, BinaryIO, cast

import installer
from installer.destinations import WheelDestination
from installer.exceptions import InvalidWheelSource
from installer.records import Hash, InvalidRecordEntry, RecordEntry, parse_record_file
from installer.sources import WheelFile
from installer.utils import Scheme
from isal import isal_zlib

from gpuimg.errors import BadInput

CHUNK = 1 << 20
RECIPE = "2"
"""Changes when the same wheel would give other bytes; part of every cache key."""


@dataclass(frozen=True)
class Environment:
    """The virtual environment a layer is for. ``prefix`` is absolute, ``python`` is 'major.minor'."""

    prefix: str = "/opt/venv"
    python: str = "3.11"

    @property
    def site_packages(self) -> str:
        return f"{self.prefix}/lib/python{self.python}/site-packages"

    @property
    def key(self) -> str:
        return f"{RECIPE}:{self.prefix}:{self.python}"

    def schemes(self, distribution: str) -> dict[str, str]:
        """Wheel scheme → absolute folder in the image (sysconfig's 'venv' scheme)."""
        return {
            "purelib": self.site_packages,
            "platlib": self.site_packages,
            "scripts": f"{self.prefix}/bin",
            "data": self.prefix,
            "headers": f"{self.prefix}/include/site/python{self.python}/{distribution}",
        }


class LayerTar:
    """Writes one layer's tar: every file once, parents before children, all times 0, all owners root.

    tarfile makes the headers; the data goes straight through, since tarfile's own copying (16 KiB at a time, through
    a growing buffer) took four times as long as the inflating.
    """

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._write = write
        self._folders: set[str] = set()
        self._files: set[str] = set()

    def add(self, path: str, chunks: Iterable[bytes], size: int, *, executable: bool = False) -> None:
        """Add one file of ``size`` bytes by its absolute path. A second file of the same path is left out."""
        name = path.lstrip("/")
        if name in self._files:
            return
        self._files.add(name)
        self._parents(name)
        info = tarfile.TarInfo(name)
        info.size, info.mode = size, 0o755 if executable else 0o644
        self._write(info.tobuf(tarfile.PAX_FORMAT))
        written = 0
        for chunk in chunks:
            self._write(chunk)
            written += len(chunk)
        if written != size:
            raise BadInput(f"{path}: {written} bytes where the wheel's directory says {size}; the wheel is damaged")
        self._write(b"\0" * (-size % tarfile.BLOCKSIZE))

    def close(self) -> None:
        self._write(b"\0" * (2 * tarfile.BLOCKSIZE))

    def _parents(self, name: str) -> None:
        parent = posixpath.dirname(name)
        if not parent or parent in self._folders:
            return
        self._folders.add(parent)
        self._parents(parent)
        info = tarfile.TarInfo(parent)
        info.type, info.mode = tarfile.DIRTYPE, 0o755
        self._write(info.tobuf(tarfile.PAX_FORMAT))


class _Inflated(io.RawIOBase):
    """One member of a wheel, inflated as it is read; ``size`` in bytes and ``record`` as its RECORD row says.

    isal's inflate is 1.8 times as fast as zlib's (229 against 128 MB/s on libcublasLt.so, 2 cores), and inflating is
    the largest single cost of a layer. The CRC is checked at the end.
    """

    def __init__(self, archive: IO[bytes], info: zipfile.ZipInfo, record: RecordEntry) -> None:
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise BadInput(f"{info.filename}: compression method {info.compress_type} is not used in wheels")
        self._archive = archive
        self._info = info
        self.size = info.file_size
        self.record = record

    def chunks(self) -> Iterator[bytes]:
        """The member's bytes, in pieces of any size."""
        archive, info = self._archive, self._info
        archive.seek(info.header_offset)
        name_length, extra_length = struct.unpack("<HH", archive.read(30)[26:30])
        archive.seek(name_length + extra_length, os.SEEK_CUR)
        left, crc = info.compress_size, 0
        inflate = isal_zlib.decompressobj(-15) if info.compress_type == zipfile.ZIP_DEFLATED else None
        while left:
            raw = archive.read(min(CHUNK, left))
            if not raw:
                raise BadInput(f"{info.filename}: the wheel ends in the middle of this member")
            left -= len(raw)
            try:
                data = raw if inflate is None else inflate.decompress(raw)
            except isal_zlib.IsalError as error:  # type: ignore[misc]  # its stub calls the class a value
                raise BadInput(f"{info.filename}: {error}; the wheel is damaged") from None
            if data:
                crc = isal_zlib.crc32(data, crc)
                yield data
        if crc != info.CRC:
            raise BadInput(f"{info.filename}: CRC differs; the wheel is damaged")

    def read(self, size: int = -1) -> bytes:
        """The whole member; partial reads are not offered."""
        return b"".join(self.chunks())


class _FastWheel(WheelFile):
    """installer's wheel source, with members inflated by isal; each stream knows its size and RECORD row."""

    def __init__(self, archive: zipfile.ZipFile, handle: IO[bytes]) -> None:
        super().__init__(archive)
        self._handle = handle

    def get_contents(self) -> Iterator[tuple[tuple[str, str, str], BinaryIO, bool]]:
        rows = {row[0]: row for row in parse_record_file(self.read_dist_info("RECORD").splitlines())}
        for info in self._zipfile.infolist():
            if info.is_dir():
                continue
            row = rows.get(info.filename, (info.filename, "", ""))
            stream = _Inflated(self._handle, info, RecordEntry.from_elements(*row))
            yield row, cast(BinaryIO, stream), bool((info.external_attr >> 16) & 0o111)


class _TarDestination(WheelDestination):
    """installer's destination that writes into a :class:`LayerTar`."""

    def __init__(self, tar: LayerTar, environment: Environment, distribution: str, record_mode: bool) -> None:
        self._tar = tar
        self._record_mode = record_mode
        self._prefix = environment.prefix
        self._site_packages = environment.site_packages
        self._schemes = environment.schemes(distribution)

    def write_file(
        self, scheme: Scheme, path: str | os.PathLike[str], stream: BinaryIO, is_executable: bool
    ) -> RecordEntry:
        target = posixpath.normpath(f"{self._schemes[scheme]}/{path}")
        if not target.startswith(self._prefix + "/"):
            raise BadInput(f"{path}: the wheel wants to write outside {self._prefix}")
        if not isinstance(stream, _Inflated):
            return self._add(target, stream.read(), is_executable)
        if scheme == "scripts":
            # a script's first line becomes the environment's Python; programs stay as they are
            data = stream.read()
            if data.startswith(b"#!python"):
                first, newline, rest = data.partition(b"\n")
                arguments = first.removeprefix(b"#!pythonw").removeprefix(b"#!python")
                data = f"#!{self._prefix}/bin/python".encode() + arguments + newline + rest
            return self._add(target, data, True)
        self._tar.add(target, stream.chunks(), stream.size, executable=is_executable)
        return RecordEntry(self._relative(target), stream.record.hash_, stream.record.size)

    def write_script(self, name: str, module: str, attr: str, section: str) -> RecordEntry:
        # the text uv writes, so that both producers of an image agree file for file
        text = (
            f"#!{self._prefix}/bin/python\n"
            "# -*- coding: utf-8 -*-\n"
            "import sys\n"
            f"from {module} import {attr.split('.')[0]}\n"
            'if __name__ == "__main__":\n'
            '    if sys.argv[0].endswith("-script.pyw"):\n'
            "        sys.argv[0] = sys.argv[0][:-11]\n"
            '    elif sys.argv[0].endswith(".exe"):\n'
            "        sys.argv[0] = sys.argv[0][:-4]\n"
            f"    sys.exit({attr}())\n"
        )
        return self._add(f"{self._prefix}/bin/{name}", text.encode(), True)

    def finalize_installation(
        self, scheme: Scheme, record_file_path: str, records: Iterable[tuple[Scheme, RecordEntry]]
    ) -> None:
        """Write RECORD, sorted by path, paths relative to site-packages."""
        text = io.StringIO()
        rows = csv.writer(text, lineterminator="\n")
        rows.writerows(sorted({entry.to_row() for _, entry in records}))
        self._add(f"{self._site_packages}/{record_file_path}", text.getvalue().encode(), self._record_mode)

    def _add(self, target: str, data: bytes, executable: bool) -> RecordEntry:
        self._tar.add(target, (data,), len(data), executable=executable)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        return RecordEntry(self._relative(target), Hash("sha256", digest), len(data))

    def _relative(self, target: str) -> str:
        return posixpath.relpath(target, self._site_packages)


def write_wheel(wheel: Path, tar: LayerTar, environment: Environment) -> None:
    """Write one wheel's installed files into ``tar``.

    Raises:
        BadInput: the file is not a wheel, is damaged, or would write outside the environment.
    """
    try:
        with wheel.open("rb") as handle, zipfile.ZipFile(wheel) as archive:
            source = _FastWheel(archive, handle)
            record = archive.getinfo(f"{source.dist_info_dir}/RECORD")
            executable = bool((record.external_attr >> 16) & 0o111)  # some wheels ship it so; installers keep that
            destination = _TarDestination(tar, environment, source.distribution, executable)
            with warnings.catch_warnings():
                # a few wheels carry stale bytecode; installer leaves it out, and so do we
                warnings.filterwarnings("ignore", "Skip installing", RuntimeWarning)
                installer.install(source, destination, {"INSTALLER": b"uv", "REQUESTED": b""})
    except (zipfile.BadZipFile, InvalidWheelSource, InvalidRecordEntry, KeyError, ValueError) as error:
        raise BadInput(f"{wheel.name}: not a wheel that can be read: {error}") from None
