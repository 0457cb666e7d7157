"""How the process of a check hands its result to the runner: over a private pipe, under a key of its own.

Whatever the code under test prints goes elsewhere (captured stdout and stderr), and a line written to the pipe without
the key is refused. This keeps prints, banners and accidents out; a hostile program in the same process is met with
challenges that the host recomputes (:mod:`.challenge`) and with the host's own view of the GPU.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
from typing import Any

PREFIX = b"GPUIMG1 "
MAX_FRAME = 8 << 20
"""Bytes of one frame; a longer one is refused."""


def plain(value: Any) -> Any:
    """The value as strict JSON: numpy scalars and arrays become numbers and lists, NaN and infinities strings."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(v) for v in value]
    for method in ("item", "tolist"):
        if hasattr(value, method):
            try:
                return plain(getattr(value, method)())
            except Exception:
                continue
    return str(value)


def dumps(value: Any) -> str:
    """Strict JSON on one line, keys sorted: the same value always gives the same bytes."""
    return json.dumps(plain(value), sort_keys=True, ensure_ascii=False, allow_nan=False)


def frame(key: bytes, value: Any) -> bytes:
    """One frame: ``GPUIMG1 <hmac> <json>\\n``."""
    body = dumps(value).encode("utf-8", "backslashreplace")
    return PREFIX + hmac.new(key, body, hashlib.sha256).hexdigest().encode() + b" " + body + b"\n"


def unframe(key: bytes, data: bytes) -> tuple[list[Any], int]:
    """``(values, refused)``: the values of all frames under this key, and how many lines were not."""
    values: list[Any] = []
    refused = 0
    for line in data.split(b"\n"):
        if not line:
            continue
        parts = line.split(b" ", 2)
        if len(parts) != 3 or parts[0] + b" " != PREFIX:
            refused += 1
            continue
        if not hmac.compare_digest(hmac.new(key, parts[2], hashlib.sha256).hexdigest().encode(), parts[1]):
            refused += 1
            continue
        try:
            values.append(json.loads(parts[2].decode("utf-8")))
        except ValueError:
            refused += 1
    return values, refused
