"""GPU code in shared objects: which architectures a fat binary holds, read from headers alone. Pure functions.

Container: magic 0xBA55ED50, u16 version, u16 header size, u64 payload size; then entries: u16 kind (1 PTX, 2 SASS),
u16, u32 header size, u64 payload size, the architecture as u32 at +28, flags as u64 at +40 (0x100000 'a', 0x200000
'f'; observed, not documented by NVIDIA).
"""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Iterable

MAGIC = b"\x50\xed\x55\xba"
_ARCH_LIST = re.compile(rb"(?:(?:sm|compute)_[0-9]+[a-z]?)(?: (?:sm|compute)_[0-9]+[a-z]?)+")
_SONAME = re.compile(rb"lib(?:cudart|cudnn|cublas|cublasLt|cufft|curand|nvrtc|nccl|nvinfer)\.so\.\d+(?:\.\d+)*")


def scan(data: bytes | bytearray, start: int = 0) -> tuple[Counter[str], int, int]:
    """(entries by target, containers, where to go on) of the whole containers from ``start``.

    Targets: 'sm_80', 'sm_90a', 'compute_80'. A container cut off at the end is left for the next call.
    """
    found: Counter[str] = Counter()
    containers = 0
    position = start
    while True:
        at = data.find(MAGIC, position)
        if at < 0:
            return found, containers, max(position, len(data) - len(MAGIC) + 1)
        if at + 16 > len(data):
            return found, containers, at
        version, header, size = struct.unpack_from("<HHQ", data, at + 4)
        if version != 1 or header != 16 or size > 1 << 31:
            position = at + 4
            continue
        end = at + header + size
        if end > len(data):
            return found, containers, at
        containers += 1
        entry = at + header
        while entry + 48 <= end:
            kind, _, own, payload = struct.unpack_from("<HHIQ", data, entry)
            if kind not in (1, 2, 4, 8, 16, 64) or own < 32 or own > 4096:
                break
            (arch,) = struct.unpack_from("<I", data, entry + 28)
            flags = struct.unpack_from("<Q", data, entry + 40)[0] if own >= 48 else 0
            letter = "a" if flags & 0x100000 else "f" if flags & 0x200000 else ""
            if kind in (1, 2) and 20 <= arch <= 999:
                found[f"{'compute' if kind == 1 else 'sm'}_{arch}{letter}"] += 1
            entry += own + payload
        position = end


def common_targets(entries: Counter[str], share: float = 0.5) -> list[str]:
    """Targets most kernels have: at least ``share`` of the most frequent SASS target's count.

    The union would claim support that exists for single kernels only.
    """
    most = max((n for t, n in entries.items() if t.startswith("sm_")), default=0)
    if most == 0:
        return []
    return sort_targets(t for t, n in entries.items() if n >= share * most)


def sort_targets(targets: Iterable[str]) -> list[str]:
    """SASS before PTX, each by number."""

    def key(target: str) -> tuple[bool, int, str]:
        number = re.search(r"\d+", target)
        return target.startswith("compute"), int(number.group()) if number else 0, target

    return sorted(set(targets), key=key)


def arch_list_string(data: bytes) -> list[str]:
    """What torch.cuda.get_arch_list() returns, found as the longest such string of the library; [] when absent."""
    best = max((m.group() for m in _ARCH_LIST.finditer(data)), key=len, default=b"")
    return sort_targets(best.decode().split())


def sonames(data: bytes) -> list[str]:
    """CUDA libraries with their major version that the bytes name: 'libcudart.so.12'."""
    return sorted({m.group().decode() for m in _SONAME.finditer(data)})
