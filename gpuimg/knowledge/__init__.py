"""What exists and what works with what: data files (each row with its source) and pure rules over them."""

from __future__ import annotations

from gpuimg.knowledge.base import Knowledge, load

__all__ = ["Knowledge", "load"]
