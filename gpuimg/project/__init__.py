"""A user's project: which packages and versions its files ask for, with file and line on everything."""

from __future__ import annotations

from gpuimg.project.needs import read_needs

__all__ = ["read_needs"]
