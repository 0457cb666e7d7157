"""Xid numbers of the NVIDIA kernel driver: what each means, how bad it is, what to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml


@dataclass(frozen=True)
class Xid:
    """One number. ``severity``: 'fail' hardware or host trouble, 'warn' worth a look, 'app' a program's fault."""

    number: int
    meaning: str
    severity: str
    fix: str
    source: str


@lru_cache(maxsize=1)
def xids() -> Mapping[int, Xid]:
    """All numbers known, from ``data/xids.yaml``."""
    text = (Path(__file__).parent / "data" / "xids.yaml").read_text(encoding="utf-8")
    document: dict[str, Any] = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    source = str(document["source"])
    return {int(number): Xid(int(number), source=source, **row) for number, row in document["xids"].items()}
