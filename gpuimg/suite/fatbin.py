"""Which GPU targets a shared library holds code for: a scan of its CUDA fat binaries, in pure Python.

Layout (measured with 534 containers of one library against cuobjdump): a container starts with u32 0xBA55ED50, u16 1,
u16 16, u64 payload size; each entry with u16 kind (1 PTX, 2 machine code), u16, u32 header size, u64 payload size; the
target is the u32 at +28, flags the u64 at +40 (0x100000 'a' target, 0x200000 'f' target).
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

MAGIC = b"\x50\xed\x55\xba"
ARCH_SPECIFIC, FAMILY_SPECIFIC = 0x100000, 0x200000


def scan_bytes(buffer: Any, limit: int | None = None, deadline: float | None = None) -> Counter[str]:
    """Entries per target ('sm_80', 'compute_90', 'sm_90a') in a bytes-like object; at most ``limit`` containers."""
    counts: Counter[str] = Counter()
    size = len(buffer)
    position = containers = 0
    while True:
        position = buffer.find(MAGIC, position)
        if position < 0 or position + 16 > size:
            return counts
        _, version, header, payload = struct.unpack_from("<IHHQ", buffer, position)
        if version != 1 or header != 16 or payload > size - position:
            position += 4
            continue
        containers += 1
        entry, end = position + header, position + header + payload
        while entry + 48 <= end:
            kind, _, entry_header, entry_payload = struct.unpack_from("<HHIQ", buffer, entry)
            if kind not in (1, 2, 4, 8, 16) or not 32 <= entry_header <= 4096 or entry_payload > end - entry:
                break
            (target,) = struct.unpack_from("<I", buffer, entry + 28)
            (flags,) = struct.unpack_from("<Q", buffer, entry + 40)
            letter = "a" if flags & ARCH_SPECIFIC else "f" if flags & FAMILY_SPECIFIC else ""
            if kind in (1, 2) and 20 <= target <= 200:
                counts[f"{'compute' if kind == 1 else 'sm'}_{target}{letter}"] += 1
            entry += entry_header + entry_payload
        position = end
        if (limit is not None and containers >= limit) or (deadline is not None and time.monotonic() > deadline):
            return counts


def scan_file(path: str | os.PathLike[str], deadline: float | None = None) -> Counter[str]:
    """The same for a file, mapped and not read into memory. Empty for a file without GPU code or of size 0."""
    if os.path.getsize(path) == 0:
        return Counter()
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
        return scan_bytes(view, deadline=deadline)


def libraries(folders: Iterable[str], smallest: int = 1 << 20) -> list[Path]:
    """Shared libraries in these folders and below, largest first; links and files under ``smallest`` left out."""
    found: dict[str, tuple[int, Path]] = {}
    for folder in folders:
        for root, _, names in os.walk(folder):
            for name in names:
                if ".so" not in name:
                    continue
                path = Path(root) / name
                try:
                    real = str(path.resolve())
                    size = path.stat().st_size
                except OSError:
                    continue
                if size >= smallest:
                    found[real] = (size, path)
    return [path for _, path in sorted(found.values(), key=lambda item: (-item[0], str(item[1])))]
