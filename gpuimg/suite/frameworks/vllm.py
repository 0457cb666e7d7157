"""vLLM: an engine on top of PyTorch. Everything but engine.vllm is asked of the PyTorch that it brings."""

from __future__ import annotations

from typing import Any

from . import torch as _torch

DISTRIBUTIONS = ("vllm",)
MODULE = "vllm"


def versions() -> dict[str, Any]:
    from importlib import metadata

    return {**_torch.versions(), "framework": metadata.version("vllm"), "torch": _torch.versions()["framework"]}


def __getattr__(name: str) -> Any:
    """PyTorch's adapter answers the rest."""
    return getattr(_torch, name)
