"""Single members of a remote wheel, by HTTP range requests, without downloading the wheel."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator

import requests

_LOCAL_HEADER = 30


class RemoteFile(io.RawIOBase):
    """A seekable read-only view of a URL. Blocks already fetched are kept; neighbours are fetched in one request.

    Raises OSError when the server does not honour ranges.
    """

    def __init__(self, http: requests.Session, url: str, size: int | None, block: int = 1 << 17) -> None:
        super().__init__()
        self._http = http
        self.url = url
        self._block = block
        self._position = 0
        self._blocks: dict[int, bytes] = {}
        self.requests = 0
        self.received = 0
        self.size = size if size is not None else self._ask_size()

    def _ask_size(self) -> int:
        answer = self._http.get(self.url, headers={"Range": "bytes=0-0"}, timeout=60)
        self.requests += 1
        total = answer.headers.get("Content-Range", "").rpartition("/")[2]
        if answer.status_code != 206 or not total.isdigit():
            raise OSError(f"no range requests on this server: {answer.status_code}")
        return int(total)

    def fetch(self, start: int, stop: int) -> bytes:
        """Bytes [start, stop), straight from the server."""
        answer = self._http.get(self.url, headers={"Range": f"bytes={start}-{stop - 1}"}, timeout=180)
        if answer.status_code != 206:
            raise OSError(f"no range requests on this server: {answer.status_code}")
        data = answer.content
        self.requests += 1
        self.received += len(data)
        if len(data) != stop - start:
            raise OSError(f"asked for {stop - start} bytes, got {len(data)}")
        return data

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = 0) -> int:
        base = {0: 0, 1: self._position, 2: self.size}[whence]
        self._position = base + offset
        return self._position

    def read(self, count: int = -1) -> bytes:
        left = max(self.size - self._position, 0)
        count = left if count is None or count < 0 else min(count, left)
        if count == 0:
            return b""
        start, stop = self._position, self._position + count
        first, last = start // self._block, (stop - 1) // self._block
        number = first
        while number <= last:
            if number in self._blocks:
                number += 1
                continue
            end = number
            while end <= last and end not in self._blocks:
                end += 1
            data = self.fetch(number * self._block, min(end * self._block, self.size))
            for i in range(number, end):
                self._blocks[i] = data[(i - number) * self._block : (i - number + 1) * self._block]
            number = end
        whole = b"".join(self._blocks[i] for i in range(first, last + 1))
        self._position = stop
        return whole[start - first * self._block : start - first * self._block + count]

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer)  # type: ignore[arg-type]
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)


class RemoteWheel:
    """A wheel at a URL: its member list, small members whole, large members from their start."""

    def __init__(self, http: requests.Session, url: str, size: int | None) -> None:
        self.file = RemoteFile(http, url, size)
        self._zip = zipfile.ZipFile(self.file)

    def members(self) -> list[zipfile.ZipInfo]:
        return self._zip.infolist()

    def text(self, info: zipfile.ZipInfo) -> str:
        return self._zip.read(info).decode("utf-8", "replace")

    def stream(self, info: zipfile.ZipInfo, step: int = 4 << 20, limit: int | None = None) -> Iterator[bytes]:
        """Inflated pieces of a member from its start; at most ``limit`` compressed bytes are fetched."""
        header = self.file.fetch(info.header_offset, info.header_offset + _LOCAL_HEADER)
        name, extra = struct.unpack_from("<HH", header, 26)
        start = info.header_offset + _LOCAL_HEADER + name + extra
        inflate: Callable[[bytes], bytes] = bytes
        if info.compress_type == zipfile.ZIP_DEFLATED:
            inflate = zlib.decompressobj(-15).decompress
        elif info.compress_type != zipfile.ZIP_STORED:
            raise OSError(f"{info.filename}: compression {info.compress_type} cannot be read in part")
        stop = info.compress_size if limit is None else min(limit, info.compress_size)
        done = 0
        while done < stop:
            piece = self.file.fetch(start + done, start + min(done + step, stop))
            done += len(piece)
            yield inflate(piece)
