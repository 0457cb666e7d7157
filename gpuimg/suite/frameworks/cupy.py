"""CuPy: arrays on the GPU alone. It has no CPU side, so on a ``cpu`` run every check of it is skipped."""

from __future__ import annotations

import os
import time
from array import array
from collections.abc import Sequence
from typing import Any

from . import nparrays
from .adapter import Layer, TrainJob, TrainResult, mlp_shapes

DISTRIBUTIONS = ("cupy-cuda13x", "cupy-cuda12x", "cupy-cuda11x", "cupy")
MODULE = "cupy"
GPU_ONLY = True
"""Nothing can be computed without a GPU; :mod:`.checks` asks."""
NET = "mlp"
"""No convolutions: train.epoch uses the perceptron."""
AMP = False


def versions() -> dict[str, Any]:
    import cupy

    built = int(cupy.cuda.driver.get_build_version())
    return {
        "framework": str(cupy.__version__),
        "wheel_cuda": f"{built // 1000}.{built % 1000 // 10}" if built else None,
        "cudnn": None,
        "nccl": _nccl(),
        "gpu_build": not bool(getattr(cupy.cuda.runtime, "is_hip", False)),
    }


def _nccl() -> str | None:
    try:
        from cupy.cuda import nccl

        number = int(nccl.get_build_version())
    except (ImportError, AttributeError, RuntimeError):
        return None
    if number <= 0:
        return None
    unit = 10000 if number >= 10000 else 1000
    return f"{number // unit}.{number % unit // 100}.{number % 100}"


def arch_list() -> list[str] | None:
    return None


def library_dirs() -> list[str]:
    import cupy

    folder = os.path.dirname(str(cupy.__file__))
    return [folder, os.path.join(folder, ".data", "lib")]


def touch(ctx: Any) -> list[str]:
    import cupy

    a = cupy.ones((64, 64), cupy.float32)
    float((a @ a).sum())
    return ["matmul"]


def seen_gpus() -> list[str]:
    import cupy

    runtime = cupy.cuda.runtime
    return [runtime.getDeviceProperties(i)["name"].decode() for i in range(runtime.getDeviceCount())]


def allocated() -> int | None:
    import cupy

    return int(cupy.get_default_memory_pool().total_bytes())


# --- tensors ----------------------------------------------------------------------------------------------------


def tensor(values: Sequence[float], shape: Sequence[int], device: str) -> Any:
    import cupy

    return cupy.asarray(nparrays.to_numpy(values, shape))


def numbers(t: Any) -> array[float]:
    return nparrays.from_numpy(t.get())


def place(t: Any) -> str:
    return f"cuda:{t.device.id}"


def modes(device: str) -> list[str]:
    import cupy

    major = int(cupy.cuda.Device().compute_capability[:-1])
    return ["fp32", "fp16", *(["tf32"] if major >= 8 else [])]


def matmul(a: Any, b: Any, mode: str) -> Any:
    import cupy
    from cupy._core import _routines_linalg as linalg

    kind = linalg.COMPUTE_TYPE_TF32 if mode == "tf32" else linalg.COMPUTE_TYPE_DEFAULT
    linalg.set_compute_type(cupy.float32, kind)
    if mode == "fp16":
        return a.astype(cupy.float16) @ b.astype(cupy.float16)
    return a @ b


def attention(q: Any, k: Any, v: Any, mode: str) -> dict[str, Any]:
    import cupy

    kind = {"fp32": cupy.float32, "fp16": cupy.float16}[mode]
    q, k, v = (t.astype(kind) for t in (q, k, v))
    length, width = q.shape[-2:]
    scores = (q @ k.transpose(0, 1, 3, 2)).astype(cupy.float32) * width**-0.5
    scores = cupy.where(cupy.tri(length, dtype=bool), scores, cupy.float32(-1e9))
    weights = cupy.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return {"composed": weights.astype(kind) @ v}


def _timed(work: Any, repeats: int) -> list[float]:
    """Milliseconds of each call by CUDA events."""
    import cupy

    marks = [cupy.cuda.Event() for _ in range(repeats + 1)]
    marks[0].record()
    for i in range(repeats):
        work()
        marks[i + 1].record()
    marks[-1].synchronize()
    return [float(cupy.cuda.get_elapsed_time(marks[i], marks[i + 1])) for i in range(repeats)]


def bench_matmul(n: int, mode: str, seconds: float) -> list[float]:
    import cupy

    kind = {"fp32": cupy.float32, "fp16": cupy.float16}[mode]
    a, b = (cupy.random.standard_normal((n, n), dtype=cupy.float32).astype(kind) for _ in range(2))
    out = cupy.empty((n, n), kind)
    _timed(lambda: cupy.matmul(a, b, out=out), 3)
    times: list[float] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        times += _timed(lambda: cupy.matmul(a, b, out=out), 10)
    return times


def bench_copy(mib: int, repeats: int) -> list[float]:
    import cupy

    source = cupy.arange(mib << 18, dtype=cupy.uint32)
    target = cupy.empty_like(source)

    def copy() -> None:
        target.data.copy_from_device_async(source.data, source.nbytes, cupy.cuda.get_current_stream())

    _timed(copy, 3)
    return _timed(copy, repeats)


def bench_transfer(mib: int, repeats: int) -> dict[str, list[float]]:
    import cupy
    import numpy

    size = mib << 20
    pinned = cupy.cuda.alloc_pinned_memory(size)
    host = numpy.frombuffer(pinned, numpy.uint8, size)
    host[:] = 7
    card = cupy.empty(size, cupy.uint8)
    stream = cupy.cuda.get_current_stream()
    _timed(lambda: card.set(host, stream=stream), 2)
    h2d = _timed(lambda: card.set(host, stream=stream), repeats)
    host[:] = 0

    def back() -> None:
        card.data.copy_to_host_async(host.ctypes.data, size, stream)

    d2h = _timed(back, repeats)
    stream.synchronize()
    if int(host[0]) != 7 or int(host[-1]) != 7:
        raise RuntimeError("the bytes that came back are not the bytes that were sent")
    return {"h2d": h2d, "d2h": d2h}


# --- training and inference ---------------------------------------------------------------------------------------


def train(job: TrainJob) -> TrainResult:
    """The perceptron with gradients written out; on ``cpu`` the same in numpy, to compare with."""
    import numpy

    if job.device == "cuda":
        import cupy as xp
    else:
        xp = numpy
    if job.net != "mlp":
        raise ValueError("CuPy trains the perceptron only")
    p = [xp.asarray(nparrays.to_numpy(w, s)) for w, s in zip(job.weights, job.shapes)]
    m = [xp.zeros_like(w) for w in p]
    losses = []
    for hx, hy in nparrays.minibatches(job):
        x, rows = xp.asarray(hx), xp.arange(job.batch)
        y = xp.asarray(hy)
        h1 = xp.maximum(x @ p[0] + p[1], 0)
        h2 = xp.maximum(h1 @ p[2] + p[3], 0)
        z = h2 @ p[4] + p[5]
        e = xp.exp(z - z.max(1, keepdims=True))
        share = e / e.sum(1, keepdims=True)
        losses.append(float(-xp.log(share[rows, y]).mean()))
        slope = share.copy()
        slope[rows, y] -= 1
        slope /= job.batch
        s2 = (slope @ p[4].T) * (h2 > 0)
        s1 = (s2 @ p[2].T) * (h1 > 0)
        slopes = [x.T @ s1, s1.sum(0), h1.T @ s2, s2.sum(0), h2.T @ slope, slope.sum(0)]
        for i in range(6):
            m[i] = job.momentum * m[i] + slopes[i]
            p[i] = p[i] - job.rate * m[i]
    t = xp.asarray(nparrays.to_numpy(job.test_x, (-1, 64)))
    for i in (0, 2):
        t = xp.maximum(t @ p[i] + p[i + 1], 0)
    t = t @ p[4] + p[5]
    on_card = job.device == "cuda"
    return TrainResult(
        losses=losses,
        logits=array("f", numbers(t) if on_card else nparrays.from_numpy(t)),
        weights=[array("f", numbers(w) if on_card else nparrays.from_numpy(w)) for w in p],
        place=place(t) if on_card else "cpu",
    )


def checkpoint_save(weights: Sequence[Any], shapes: Sequence[Sequence[int]], path: str, device: str) -> None:
    import cupy

    with open(path, "wb") as file:
        cupy.savez(file, **{f"w{i}": tensor(w, s, device) for i, (w, s) in enumerate(zip(weights, shapes))})


def checkpoint_load(path: str, shapes: Sequence[Sequence[int]], device: str) -> list[bytes]:
    import cupy

    with cupy.load(path) as found:
        return [nparrays.float_bytes(found[f"w{i}"].get()) for i in range(len(mlp_shapes()))]


def compiled(x: Any, w: Any) -> tuple[Any, Any, str]:
    """A kernel compiled by NVRTC at run time, which is what CuPy's elementwise kernels are."""
    import cupy
    import numpy

    product = x @ w
    host_p, host_x = product.get().astype(numpy.float64), x.get().astype(numpy.float64)
    eager = cupy.asarray((2.0 * numpy.tanh(host_p) + host_x).astype(numpy.float32))
    kernel = cupy.ElementwiseKernel("T p, T a", "T out", "out = 2 * tanh(p) + a", "gpuimg_tanh")
    return eager, kernel(product, x), "cupy.ElementwiseKernel (NVRTC)"


def model_save(layers: Sequence[Layer], path: str, device: str) -> str:
    nparrays.save_layers(layers, path, False)
    return "npz"


def quantised_save(layers: Sequence[Layer], path: str, device: str) -> str:
    nparrays.save_layers(layers, path, True)
    return "int8 weights, one scale per output channel (npz)"


def model_run(path: str, x: Sequence[float], rows: int, device: str) -> tuple[array[float], str]:
    import cupy

    t = tensor(x, (rows, 64), device)
    with cupy.load(path) as found:
        quantised = "q0" in found.npz_file.files
        for i in range(3):
            if quantised:
                t = (t @ found[f"q{i}"].astype(cupy.float32)) * found[f"s{i}"] + found[f"b{i}"]
            else:
                t = t @ found[f"w{i}"] + found[f"b{i}"]
            t = cupy.maximum(t, 0) if i < 2 else t
    return array("f", numbers(t)), place(t)


quantised_run = model_run


def lm_ops(device: str) -> Any:
    import cupy

    def softmax(t: Any) -> Any:
        e = cupy.exp(t - t.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    class Ops:
        tensor = staticmethod(lambda values, shape: tensor(values, shape, device))
        take = staticmethod(lambda table, ids: table[cupy.asarray(list(ids))])
        reshape = staticmethod(lambda t, shape: t.reshape(tuple(shape)))
        transpose = staticmethod(lambda t, axes: t.transpose(tuple(axes)))
        concat = staticmethod(lambda parts, axis: cupy.concatenate(parts, axis=axis))
        sigmoid = staticmethod(lambda t: 1 / (1 + cupy.exp(-t)))
        mean = staticmethod(lambda t: t.mean(-1, keepdims=True))
        rsqrt = staticmethod(lambda t: 1 / cupy.sqrt(t))
        numbers = staticmethod(numbers)
        place = staticmethod(place)

    Ops.softmax = staticmethod(softmax)  # type: ignore[attr-defined]
    return Ops
