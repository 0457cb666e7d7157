"""Did the work run on the GPU? Three witnesses, none of which is the framework's exit code.

1. The framework's own word on the result: its device attribute (:func:`Core.place`).
2. The driver's word: a process that used CUDA through the runtime has an active primary context on a device
   (``cuDevicePrimaryCtxGetState``); a process that fell back to the CPU has none. Saying so does not help it.
3. The allocator's or the driver's word on memory held by this process.
"""

from __future__ import annotations

import ctypes
from typing import Any

from ..registry import Outcome, failed


def active_contexts() -> list[int] | None:
    """Indices of the GPUs on which this process has an active primary context; None when libcuda cannot be asked."""
    try:
        lib = ctypes.CDLL("libcuda.so.1")
        if lib.cuInit(0) != 0:
            return None
        count = ctypes.c_int()
        if lib.cuDeviceGetCount(ctypes.byref(count)) != 0:
            return None
        active = []
        for index in range(count.value):
            device, flags, state = ctypes.c_int(), ctypes.c_uint(), ctypes.c_int()
            if lib.cuDeviceGet(ctypes.byref(device), index) != 0:
                return None
            if lib.cuDevicePrimaryCtxGetState(device, ctypes.byref(flags), ctypes.byref(state)) != 0:
                return None
            if state.value:
                active.append(index)
        return active
    except (OSError, AttributeError):
        return None


def gather(ctx: Any, place: str) -> dict[str, Any]:
    """What the witnesses say, for the ``measured`` of a check."""
    adapter = ctx.adapter
    found: dict[str, Any] = {"result_device": place}
    if ctx.device != "cuda":
        return found
    found["contexts_on_gpus"] = active_contexts()
    allocated = adapter.allocated() if adapter.has("allocated") else None
    if allocated is not None:
        found["allocated_bytes"] = int(allocated)
    return found


def judge(device: str, found: dict[str, Any], framework: str) -> Outcome | None:
    """None when the work ran where it had to; else the failure. Pure."""
    if device != "cuda":
        return None
    place = str(found.get("result_device"))
    contexts = found.get("contexts_on_gpus")
    reason = None
    if not place.lower().startswith(("cuda", "gpu")):
        reason = f"{framework} computed on {place!r}, not on the GPU, and did not say so"
    elif contexts is not None and not contexts:
        reason = f"{framework} says {place!r}, but this process has no CUDA context on any GPU"
    elif found.get("allocated_bytes") == 0:
        reason = f"{framework} says {place!r}, but holds no GPU memory"
    if reason is None:
        return None
    return failed(
        reason,
        "it fell back to the CPU: a CPU-only build, GPU libraries that did not load (read its stderr), or a driver "
        "too old for its wheel_cuda; see triangle.loaded",
        found,
        {"result_device": "cuda"},
    )
