"""Which Python a distribution's own packages can give an image."""

from __future__ import annotations

from gpuimg.knowledge import load

MORE = {"ubuntu20.04": ("3.9",), "ubuntu22.04": ("3.11",)}
"""Beside python3 itself, in universe: https://packages.ubuntu.com/focal-updates/python3.9,
https://packages.ubuntu.com/jammy-updates/python3.11."""
FAMILIES = ("debian", "ubuntu")
"""Distributions the Dockerfile's package step is written for."""


def pythons_of(os: str) -> tuple[str, ...]:
    """'ubuntu22.04' → ('3.10', '3.11'); empty for a distribution we do not build on."""
    own = load().python_of_os(os)
    return (own, *MORE.get(os, ())) if own and os.startswith(FAMILIES) else ()


def systems_with(python: str) -> list[str]:
    """Distributions that have that Python: '3.12' → ['ubuntu24.04']."""
    return [os for os in load().oses if python in pythons_of(os)]


def systems() -> list[str]:
    """Every distribution an image can be built on."""
    return [os for os in load().oses if pythons_of(os)]
