"""What works with what, as pure functions over plain values. Every rule gives ``Outcome``s: a finding and what
follows."""

from __future__ import annotations

from gpuimg.knowledge.rules.outcome import Mode, Outcome, combine, outcome

__all__ = ["Mode", "Outcome", "combine", "outcome"]
