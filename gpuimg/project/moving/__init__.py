"""A project folder: what it needs, and what in it will not survive the move to a Linux GPU server."""

from __future__ import annotations

from gpuimg.project.moving.scan import Scan, scan

__all__ = ["Scan", "scan"]
