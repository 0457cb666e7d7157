"""JAX. Products are asked for at the highest precision unless TF32 is what is tested: JAX's default on GPUs is TF32."""

from __future__ import annotations

import os
import time
from array import array
from collections.abc import Sequence
from typing import Any

from . import nparrays
from .adapter import Layer, TrainJob, TrainResult

DISTRIBUTIONS = ("jax",)
MODULE = "jax"

# JAX takes three quarters of the GPU's memory at its first use; beside other checks and tenants that is impolite
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


def _plugin_versions() -> dict[str, Any]:
    """Build versions that the CUDA plugin of this JAX tells (jax-cuda12-plugin, jax-cuda13-plugin)."""
    import importlib

    for module in ("jax_cuda13_plugin._versions", "jax_cuda12_plugin._versions", "jaxlib.cuda._versions"):
        try:
            found = importlib.import_module(module)
        except ImportError:
            continue
        out: dict[str, Any] = {}
        for key, function in (("wheel_cuda", "cuda_runtime_build_version"), ("cudnn", "cudnn_build_version")):
            try:
                out[key] = _dotted(int(getattr(found, function)()), key)
            except (AttributeError, RuntimeError):
                out[key] = None
        return out
    return {}


def _dotted(number: int, key: str) -> str:
    """13000 → 13.0 for CUDA; 91900 → 9.19.0, 8907 → 8.9.7 for cuDNN (9 counts in ten thousands)."""
    if key == "wheel_cuda":
        return f"{number // 1000}.{number % 1000 // 10}"
    unit = 10000 if number >= 90000 else 1000
    return f"{number // unit}.{number % unit // 100}.{number % 100}"


def versions() -> dict[str, Any]:
    import jax

    found = _plugin_versions()
    return {
        "framework": str(jax.__version__),
        "wheel_cuda": found.get("wheel_cuda"),
        "cudnn": found.get("cudnn"),
        "nccl": None,
        "gpu_build": bool(found),
    }


def arch_list() -> list[str] | None:
    return None


def library_dirs() -> list[str]:
    import importlib.util

    dirs = []
    for name in (
        "jaxlib",
        "jax_cuda13_plugin",
        "jax_cuda12_plugin",
        "jax_plugins.xla_cuda13",
        "jax_plugins.xla_cuda12",
    ):
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, ValueError):
            continue
        dirs += list((spec.submodule_search_locations or []) if spec else [])
    return dirs


def _device(device: str) -> Any:
    import jax

    # 'cuda' raises RuntimeError when the plugin did not come up; its words reach stderr and the reason
    return jax.devices("cuda" if device == "cuda" else "cpu")[0]


def touch(ctx: Any) -> list[str]:
    import jax
    import jax.numpy as jnp

    done = []
    with jax.default_device(_device(ctx.device)):
        a = jnp.ones((64, 64))
        (a @ a).block_until_ready()
        done.append("matmul")
        x, w = jnp.ones((2, 8, 16, 16)), jnp.ones((8, 8, 3, 3))
        jax.lax.conv(x, w, (1, 1), "SAME").block_until_ready()
        done.append("conv")
    if ctx.device == "cuda":
        jax.pmap(lambda v: jax.lax.psum(v, "i"), axis_name="i")(
            jnp.ones((jax.local_device_count(), 1024))
        ).block_until_ready()
        done.append("all_reduce")
    return done


def seen_gpus() -> list[str]:
    import jax

    return [d.device_kind for d in jax.devices() if d.platform in ("gpu", "cuda")]


def allocated() -> int | None:
    import jax

    device = jax.devices()[0]
    if device.platform == "cpu":
        return None
    stats = device.memory_stats() or {}
    peak = stats.get("peak_bytes_in_use", stats.get("bytes_in_use"))
    return int(peak) if peak is not None else None


# --- tensors ----------------------------------------------------------------------------------------------------


def tensor(values: Sequence[float], shape: Sequence[int], device: str) -> Any:
    import jax

    return jax.device_put(nparrays.to_numpy(values, shape), _device(device))


numbers = nparrays.from_numpy


def place(t: Any) -> str:
    device = next(iter(t.devices()))
    return f"cuda:{device.id}" if device.platform in ("gpu", "cuda") else str(device.platform)


def modes(device: str) -> list[str]:
    if device != "cuda":
        return ["fp32", "fp16", "bf16"]
    import jax

    capability = tuple(int(v) for v in str(getattr(_device("cuda"), "compute_capability", "0.0")).split("."))
    found = ["fp32", "fp16"]
    if capability >= (8, 0):
        found += ["tf32", "bf16"]
    if capability >= (8, 9) and hasattr(jax.numpy, "float8_e4m3fn"):
        found.append("fp8")
    return found


def matmul(a: Any, b: Any, mode: str) -> Any:
    import jax
    import jax.numpy as jnp

    if mode in ("fp32", "tf32"):
        return jnp.matmul(a, b, precision="highest" if mode == "fp32" else "tensorfloat32")
    kind = {"fp16": jnp.float16, "bf16": jnp.bfloat16, "fp8": getattr(jnp, "float8_e4m3fn", None)}[mode]
    work = jax.jit(lambda x, y: jnp.matmul(x, y, preferred_element_type=jnp.float32))
    try:
        return work(a.astype(kind), b.astype(kind))
    except (RuntimeError, TypeError, ValueError) as error:
        if mode != "fp8":
            raise
        # XLA compiles fp8 products for some cards and versions only; a wrong result would still be one
        raise NotImplementedError(str(error)) from None


def conv(x: Any, w: Any, dy: Any) -> tuple[Any, Any, Any]:
    import jax

    def forward(image: Any, kernel: Any) -> Any:
        return jax.lax.conv_general_dilated(image, kernel, (1, 1), "SAME", precision="highest")

    y, back = jax.vjp(forward, x, w)
    dx, dw = back(dy)
    return y, dx, dw


def attention(q: Any, k: Any, v: Any, mode: str) -> dict[str, Any]:
    import jax
    import jax.numpy as jnp

    kind = {"fp32": jnp.float32, "fp16": jnp.float16, "bf16": jnp.bfloat16}[mode]
    # (1, heads, length, width) → (1, length, heads, width), which is what JAX takes
    q, k, v = (jnp.transpose(t, (0, 2, 1, 3)).astype(kind) for t in (q, k, v))
    function = getattr(jax.nn, "dot_product_attention", None)
    if function is None:
        return {}
    found = {}
    backends = ["xla"]
    if mode != "fp32" and place(q).startswith("cuda"):
        backends.append("cudnn")
    for name in backends:
        with jax.default_matmul_precision("float32"):
            out = function(q, k, v, is_causal=True, implementation=name)
        found[name] = jnp.transpose(out, (0, 2, 1, 3))
    return found


def bench_matmul(n: int, mode: str, seconds: float) -> list[float]:
    """Wall time of ten products in one compiled call, each fed by the one before, divided by ten."""
    import jax
    import jax.numpy as jnp

    kind = {"fp32": jnp.float32, "fp16": jnp.float16, "bf16": jnp.bfloat16}[mode]
    a = jax.random.normal(jax.random.PRNGKey(1), (n, n), jnp.float32).astype(kind)
    b = (jax.random.normal(jax.random.PRNGKey(2), (n, n), jnp.float32) / n**0.5).astype(kind)
    a, b = (jax.device_put(t, _device("cuda")) for t in (a, b))

    def chain(x: Any, y: Any) -> Any:
        for _ in range(10):
            x = jnp.matmul(x, y, preferred_element_type=kind)
        return x

    ten = jax.jit(chain)
    ten(a, b).block_until_ready()
    times: list[float] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        start = time.perf_counter()
        ten(a, b).block_until_ready()
        times.append((time.perf_counter() - start) * 1e2)
    return times


def bench_copy(mib: int, repeats: int) -> list[float]:
    """Milliseconds of one ``x + 1`` over bytes, which reads and writes each once, as a copy does.

    Ten passes in one program: JAX has only the wall clock, and starting a program takes half as long as one pass.
    """
    import jax
    import jax.numpy as jnp

    x = jax.device_put(jnp.zeros((mib << 18,), jnp.uint32), _device("cuda"))
    passes = 10
    add = jax.jit(lambda v: jax.lax.fori_loop(0, passes, lambda _, w: w + jnp.uint32(1), v), donate_argnums=0)
    x = add(x).block_until_ready()
    times = []
    for _ in range(max(3, repeats // passes)):
        start = time.perf_counter()
        x = add(x).block_until_ready()
        times.append((time.perf_counter() - start) * 1e3 / passes)
    return times


# --- training ---------------------------------------------------------------------------------------------------


def _forward(p: Sequence[Any], x: Any, net: str, kind: Any) -> tuple[Any, str]:
    """Logits in float32, and the type the activations had."""
    import jax
    import jax.numpy as jnp

    p, x = [w.astype(kind) for w in p], x.astype(kind)
    if net == "mlp":
        for i in (0, 2):
            x = jax.nn.relu(x @ p[i] + p[i + 1])
    else:
        x = x.reshape(-1, 1, 8, 8)
        x = jax.nn.relu(jax.lax.conv_general_dilated(x, p[0], (1, 1), "SAME") + p[1][:, None, None])
        x = x.reshape(x.shape[0], 16, 4, 2, 4, 2).max((3, 5))
        x = jax.nn.relu(jax.lax.conv_general_dilated(x, p[2], (1, 1), "SAME") + p[3][:, None, None])
        x = x.reshape(x.shape[0], -1)
    out = x @ p[4] + p[5]
    return out.astype(jnp.float32), str(out.dtype)


def train(job: TrainJob) -> TrainResult:
    import jax
    import jax.numpy as jnp

    kind = {None: jnp.float32, "bf16": jnp.bfloat16, "fp16": jnp.float16}[job.amp]
    scale = 1024.0 if job.amp == "fp16" else 1.0  # fixed loss scaling: small gradients vanish in fp16
    seen: list[str] = []

    def loss_of(p: Any, x: Any, y: Any) -> Any:
        logits, dtype = _forward(p, x, job.net, kind)
        seen[:] = [dtype]
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1).mean() * scale

    def update(p: Any, m: Any, x: Any, y: Any) -> Any:
        loss, slopes = jax.value_and_grad(loss_of)(p, x, y)
        m = [job.momentum * old + slope / scale for old, slope in zip(m, slopes)]
        return [w - job.rate * v for w, v in zip(p, m)], m, loss / scale

    step = jax.jit(update)
    with jax.default_matmul_precision("float32"), jax.default_device(_device(job.device)):
        p = [tensor(w, s, job.device) for w, s in zip(job.weights, job.shapes)]
        m = [jnp.zeros_like(w) for w in p]
        losses = []
        for x, y in nparrays.minibatches(job):
            p, m, loss = step(p, m, x, y)
            losses.append(loss)
        logits, _ = _forward(p, tensor(job.test_x, (-1, 64), job.device), job.net, jnp.float32)
    return TrainResult(
        losses=[float(v) for v in losses],
        logits=array("f", numbers(logits)),
        weights=[array("f", numbers(w)) for w in p],
        place=place(logits),
        compute_dtype=seen[0],
    )


def checkpoint_save(weights: Sequence[Any], shapes: Sequence[Sequence[int]], path: str, device: str) -> None:
    """JAX has no format of its own: arrays from the device as .npz, as its documentation does."""
    import jax.numpy as jnp

    with open(path, "wb") as file:
        jnp.savez(file, *[tensor(w, s, device) for w, s in zip(weights, shapes)])


def checkpoint_load(path: str, shapes: Sequence[Sequence[int]], device: str) -> list[bytes]:
    import jax
    import numpy

    with numpy.load(path) as found:
        arrays = [jax.device_put(found[name], _device(device)) for name in found.files]
    return [nparrays.float_bytes(a) for a in arrays]


def compiled(x: Any, w: Any) -> tuple[Any, Any, str]:
    import jax
    import jax.numpy as jnp

    def work(a: Any, b: Any) -> Any:
        return jax.nn.gelu(jnp.matmul(a, b, precision="highest"), approximate=False) * 2 + a

    with jax.disable_jit():
        eager = work(x, w)
    return eager, jax.jit(work)(x, w), "jax.jit (XLA)"


# --- inference --------------------------------------------------------------------------------------------------


def _export(function: Any, path: str, device: str, example: Any) -> bool:
    """Serialise with jax.export (0.4.30 and newer, and needs flatbuffers); False where that is not there."""
    import jax

    try:
        from jax import export

        blob = export.export(jax.jit(function), platforms=["cuda" if device == "cuda" else "cpu"])(example).serialize()
    except ImportError:
        return False
    with open(path, "wb") as file:
        file.write(bytes(blob))
    return True


def model_save(layers: Sequence[Layer], path: str, device: str) -> str:
    import jax

    w = [(nparrays.to_numpy(v.w, (v.inputs, v.outputs)), nparrays.to_numpy(v.b, (v.outputs,))) for v in layers]

    def model(x: Any) -> Any:
        with jax.default_matmul_precision("float32"):
            for i, (weight, bias) in enumerate(w):
                x = x @ weight + bias
                x = jax.nn.relu(x) if i < len(w) - 1 else x
        return x

    if _export(model, path, device, nparrays.to_numpy([0.0] * 512, (8, 64))):
        return "jax.export (StableHLO)"
    nparrays.save_layers(layers, path, False)
    return "npz"


def quantised_save(layers: Sequence[Layer], path: str, device: str) -> str:
    import jax

    w = [(*nparrays.quantise(v.w, v.inputs, v.outputs), nparrays.to_numpy(v.b, (v.outputs,))) for v in layers]

    def model(x: Any) -> Any:
        with jax.default_matmul_precision("float32"):
            for i, (q, scale, bias) in enumerate(w):
                # the parameters must stay int8 in the file: without the barrier XLA would fold them into floats
                weight = jax.lax.optimization_barrier(jax.numpy.asarray(q)).astype(x.dtype)
                x = (x @ weight) * scale + bias
                x = jax.nn.relu(x) if i < len(w) - 1 else x
        return x

    if _export(model, path, device, nparrays.to_numpy([0.0] * 512, (8, 64))):
        return "int8 weights, one scale per output channel (StableHLO)"
    nparrays.save_layers(layers, path, True)
    return "int8 weights, one scale per output channel (npz)"


def model_run(path: str, x: Sequence[float], rows: int, device: str) -> tuple[array[float], str]:
    import jax

    t = tensor(x, (rows, 64), device)
    with open(path, "rb") as file:
        blob = file.read()
    if blob[:2] != b"PK":  # not a zip, so not .npz
        from jax import export

        out = jax.jit(export.deserialize(bytearray(blob)).call)(t)
        return array("f", numbers(out)), place(out)
    import numpy

    with numpy.load(path) as found, jax.default_matmul_precision("float32"):
        for i in range(3):
            if f"q{i}" in found.files:
                t = (t @ jax.device_put(found[f"q{i}"], _device(device)).astype(t.dtype)) * found[f"s{i}"]
            else:
                t = t @ jax.device_put(found[f"w{i}"], _device(device))
            t = t + found[f"b{i}"]
            t = jax.nn.relu(t) if i < 2 else t
    return array("f", numbers(t)), place(t)


quantised_run = model_run


def lm_ops(device: str) -> Any:
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_default_matmul_precision", "float32")

    def jit(function: Any) -> Any:
        fast = jax.jit(function)
        return lambda flat, places, mask, cache: fast(jnp.array(flat), jnp.array(places), mask, cache)

    class Ops:
        tensor = staticmethod(lambda values, shape: tensor(values, shape, device))
        take = staticmethod(lambda table, ids: jnp.take(table, jnp.array(ids), axis=0))
        reshape = staticmethod(lambda t, shape: t.reshape(tuple(shape)))
        transpose = staticmethod(lambda t, axes: jnp.transpose(t, tuple(axes)))
        concat = staticmethod(lambda parts, axis: jnp.concatenate(parts, axis=axis))
        softmax = staticmethod(lambda t: jax.nn.softmax(t, axis=-1))
        sigmoid = staticmethod(jax.nn.sigmoid)
        mean = staticmethod(lambda t: t.mean(axis=-1, keepdims=True))
        rsqrt = staticmethod(jax.lax.rsqrt)
        numbers = staticmethod(numbers)
        place = staticmethod(place)

    Ops.jit = staticmethod(jit)  # type: ignore[attr-defined]
    return Ops
