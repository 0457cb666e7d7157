"""What in a project's files will break, may break or bloats: line, reason, fix, source."""

from __future__ import annotations

from gpuimg.lint.facts import Options
from gpuimg.lint.run import lint_files, lint_text

__all__ = ["Options", "lint_files", "lint_text"]
