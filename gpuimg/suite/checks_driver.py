"""driver.*: the CUDA driver API itself, with nothing of any toolkit or framework in between."""

from __future__ import annotations

import hashlib
from typing import Any

from .cudadrv import CudaError, Driver
from .registry import Context, Outcome, check, failed, passed


def _failed(error: Exception, measured: dict[str, Any]) -> Outcome:
    if isinstance(error, CudaError):
        return failed(str(error), error.hint, {**measured, "step": error.step, "code": error.code})
    return failed(
        f"libcuda cannot be loaded: {error}",
        "the driver's libraries were not put into this container: run it with --gpus all, --runtime=nvidia or "
        "--device nvidia.com/gpu=all, and NVIDIA_DRIVER_CAPABILITIES must hold 'compute'",
        measured,
    )


@check(
    "driver.init",
    title="CUDA driver works",
    proves="libcuda, the kernel driver and the device nodes fit together, and memory on each GPU holds data",
    how="ctypes on libcuda: cuInit, cuDeviceGetCount, primary context, 8 MiB to the GPU, across it and back, per GPU; "
    "each error code is turned into its cause (100, 222, 802, 803, 804, 999 …)",
    threshold="every call answers 0 and the bytes come back unchanged",
    source="CUDA driver API (cuda.h); gpustack#1254 (802), nvidia-docker#1515 (804), podman#26233 (803)",
    needs=("gpu",),
    light=True,
    timeout=60,
)
def driver_init(ctx: Context) -> Outcome:
    measured: dict[str, Any] = {}
    try:
        driver = Driver()
        measured["libcuda_version"] = driver.version()
        measured["devices"] = driver.count()
        data = b"".join(hashlib.sha256(f"{ctx.seed}:{block}".encode()).digest() for block in range(1024)) * 256
        for index in range(driver.count()):
            driver.context(index)
            back = driver.round_trip(data)
            if back != data:
                wrong = sum(1 for a, b in zip(data, back) if a != b)
                return failed(
                    f"GPU {index} gave back {wrong} of {len(data)} bytes changed",
                    "the card's memory or its PCIe link is faulty: return the server",
                    {**measured, "gpu": index, "wrong_bytes": wrong},
                )
    except (OSError, CudaError, AttributeError) as error:
        return _failed(error, measured)
    if measured["devices"] == 0:
        return failed("the driver answers and sees no device", "hand the container a GPU", measured)
    measured["round_trip_mib"] = len(data) >> 20
    return passed(measured, {"devices": len(ctx.gpus)})


@check(
    "driver.ptx",
    title="PTX is compiled at load",
    proves="the driver's JIT compiler works, so code without machine code for this card can run at all",
    how="a PTX kernel of 20 lines (PTX 6.0, compute_50; nothing else is in the file) is loaded with cuModuleLoadData "
    "and run over 4096 words",
    threshold="it loads, and every word is 3x+1",
    source="CUDA driver API: error 222 is a PTX newer than the driver, 223 a disabled JIT",
    needs=("gpu",),
    light=True,
    timeout=60,
)
def driver_ptx(ctx: Context) -> Outcome:
    measured: dict[str, Any] = {"ptx_version": "6.0", "ptx_target": "compute_50"}
    try:
        driver = Driver()
        for index in range(driver.count()):
            driver.context(index)
            values = [ctx.rng.randrange(1 << 32) for _ in range(4096)]
            answer = driver.run_ptx(ctx.data("triple_plus_one.ptx"), values)
            wrong = sum(1 for x, y in zip(values, answer) if (3 * x + 1) % (1 << 32) != y)
            if wrong:
                return failed(f"{wrong} of 4096 words are wrong on GPU {index}", "return the server", measured)
            measured["devices"] = index + 1
    except (OSError, CudaError, AttributeError) as error:
        return _failed(error, measured)
    return passed(measured)
