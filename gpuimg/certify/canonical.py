"""One byte form for one JSON value, so that digests of evidence, policies and statements can be compared."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def canonical(value: Any) -> bytes:
    """Sorted keys, no spaces, UTF-8, no NaN: the same value always gives the same bytes.

    Raises:
        ValueError: NaN or infinity, which JSON does not have.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def digest(value: Any) -> str:
    """``sha256:…`` of the canonical form."""
    return "sha256:" + hashlib.sha256(canonical(value)).hexdigest()
