"""A stand-in for JAX that finds the GPU and fails at its first computation, as in an image without ptxas."""

import types

numpy = types.SimpleNamespace()
__version__ = "0.11.2"


def devices(kind=None):
    return [types.SimpleNamespace(platform="gpu", id=0, device_kind="NVIDIA H200", compute_capability="9.0")]


def device_put(value, device):
    raise RuntimeError(
        "FAILED_PRECONDITION: No PTX compilation provider is available. Neither ptxas/nvlink nor nvjtlink is available."
    )
