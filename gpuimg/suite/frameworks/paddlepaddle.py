"""PaddlePaddle. Its ``run_check()`` falls back to the CPU and reports success, so it is not asked."""

from __future__ import annotations

import importlib
import os
import time
from array import array
from collections.abc import Sequence
from typing import Any

from . import nparrays
from .adapter import Layer, TrainJob, TrainResult

DISTRIBUTIONS = ("paddlepaddle-gpu", "paddlepaddle")
MODULE = "paddle"

# Paddle has no switch for TF32 in float32 products; the libraries' own one is read when they load
os.environ.setdefault("NVIDIA_TF32_OVERRIDE", "0")


def _version(text: Any) -> str | None:
    return None if text in (None, "False", False, "", "0.0.0") else str(text)


def versions() -> dict[str, Any]:
    import paddle

    gpu = bool(paddle.is_compiled_with_cuda())
    nccl = getattr(paddle.version, "nccl", lambda: None)() if gpu else None
    return {
        "framework": str(paddle.__version__),
        "wheel_cuda": _version(paddle.version.cuda()) if gpu else None,
        "cudnn": _version(paddle.version.cudnn()) if gpu else None,
        "nccl": _nccl(nccl),
        "gpu_build": gpu,
    }


def _nccl(value: Any) -> str | None:
    """22602 → 2.26.2; a dotted text as it is."""
    text = _version(value)
    if text is None or not text.isdigit():
        return text
    number = int(text)
    if number == 0:
        return None
    unit = 10000 if number >= 10000 else 1000
    return f"{number // unit}.{number % unit // 100}.{number % 100}"


def arch_list() -> list[str] | None:
    import paddle

    found = getattr(paddle.version, "cuda_archs", lambda: None)()
    return [f"sm_{v}" if str(v).isdigit() else str(v) for v in found] if found else None


def library_dirs() -> list[str]:
    import paddle

    folder = os.path.dirname(str(paddle.__file__))
    return [os.path.join(folder, "base"), os.path.join(folder, "libs")]


def _set(device: str) -> Any:
    import paddle

    paddle.set_device("gpu:0" if device == "cuda" else "cpu")
    return paddle


def touch(ctx: Any) -> list[str]:
    paddle = _set(ctx.device)
    a = paddle.ones([64, 64])
    paddle.matmul(a, a).numpy()
    paddle.nn.functional.conv2d(paddle.ones([2, 8, 16, 16]), paddle.ones([8, 8, 3, 3])).numpy()
    return ["matmul", "conv"]


def seen_gpus() -> list[str]:
    import paddle

    if not paddle.is_compiled_with_cuda():
        return []
    return [paddle.device.cuda.get_device_name(i) for i in range(paddle.device.cuda.device_count())]


def allocated() -> int | None:
    import paddle

    return int(paddle.device.cuda.max_memory_allocated()) if paddle.is_compiled_with_cuda() else None


# --- tensors ----------------------------------------------------------------------------------------------------


def tensor(values: Sequence[float], shape: Sequence[int], device: str) -> Any:
    return _set(device).to_tensor(nparrays.to_numpy(values, shape))


def numbers(t: Any) -> array[float]:
    return nparrays.from_numpy(t.astype("float32").numpy())


def place(t: Any) -> str:
    name = str(t.place).lower()
    return "cuda:" + "".join(c for c in name.split("gpu", 1)[1] if c.isdigit()) if "gpu" in name else "cpu"


def modes(device: str) -> list[str]:
    if device != "cuda":
        return ["fp32"]  # the CPU wheel has no half-precision product
    import paddle

    major = paddle.device.cuda.get_device_capability()[0]
    return ["fp32", "fp16", *(["bf16"] if major >= 8 else [])]


def matmul(a: Any, b: Any, mode: str) -> Any:
    import paddle

    kind = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}[mode]
    return paddle.matmul(a.astype(kind), b.astype(kind))


def conv(x: Any, w: Any, dy: Any) -> tuple[Any, Any, Any]:
    import paddle

    x, w = x.clone().detach(), w.clone().detach()
    x.stop_gradient = w.stop_gradient = False
    y = paddle.nn.functional.conv2d(x, w, padding=1)
    dx, dw = paddle.grad((y * dy).sum(), [x, w])
    return y, dx, dw


def attention(q: Any, k: Any, v: Any, mode: str) -> dict[str, Any]:
    import paddle

    kind = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}[mode]
    # Paddle takes (1, length, heads, width)
    q, k, v = (t.transpose([0, 2, 1, 3]).astype(kind) for t in (q, k, v))
    out = paddle.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    return {"default": out.transpose([0, 2, 1, 3])}


def _timed(paddle: Any, work: Any, repeats: int) -> list[float]:
    """Milliseconds of each call by CUDA events."""
    marks = [paddle.device.cuda.Event(enable_timing=True) for _ in range(repeats + 1)]
    marks[0].record()
    for i in range(repeats):
        work()
        marks[i + 1].record()
    paddle.device.cuda.synchronize()
    return [float(marks[i].elapsed_time(marks[i + 1])) for i in range(repeats)]


def bench_matmul(n: int, mode: str, seconds: float) -> list[float]:
    paddle = _set("cuda")
    kind = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}[mode]
    a, b = (paddle.randn([n, n]).astype(kind) for _ in range(2))
    _timed(paddle, lambda: paddle.matmul(a, b), 3)
    times: list[float] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        times += _timed(paddle, lambda: paddle.matmul(a, b), 10)
    return times


# --- training ---------------------------------------------------------------------------------------------------


def _forward(paddle: Any, p: Sequence[Any], x: Any, net: str) -> tuple[Any, str]:
    """Logits, and the type of the last product."""
    f = paddle.nn.functional
    if net == "mlp":
        for i in (0, 2):
            x = f.relu(paddle.matmul(x, p[i]) + p[i + 1])
    else:
        x = x.reshape([-1, 1, 8, 8])
        x = f.max_pool2d(f.relu(f.conv2d(x, p[0], p[1], padding=1)), 2)
        x = f.relu(f.conv2d(x, p[2], p[3], padding=1)).flatten(1)
    product = paddle.matmul(x, p[4])
    return product + p[5], str(product.dtype).rsplit(".", 1)[-1]


def train(job: TrainJob) -> TrainResult:
    paddle = _set(job.device)
    p = []
    for w, s in zip(job.weights, job.shapes):
        start = paddle.nn.initializer.Assign(nparrays.to_numpy(w, s))
        p.append(paddle.create_parameter(list(s), "float32", default_initializer=start))
    optimiser = paddle.optimizer.Momentum(job.rate, job.momentum, parameters=p)
    kind = {None: "float16", "bf16": "bfloat16", "fp16": "float16"}[job.amp]
    scaler = paddle.amp.GradScaler() if job.amp == "fp16" and job.device == "cuda" else None
    losses, seen = [], "float32"
    for x, y in nparrays.minibatches(job):
        with paddle.amp.auto_cast(enable=job.amp is not None, dtype=kind):
            logits, seen = _forward(paddle, p, paddle.to_tensor(x), job.net)
        labels = paddle.to_tensor(y.astype("int64"))
        loss = paddle.nn.functional.cross_entropy(logits.astype("float32"), labels)
        if scaler is not None:
            scaler.scale(loss).backward()
            scaler.step(optimiser)
            scaler.update()
        else:
            loss.backward()
            optimiser.step()
        optimiser.clear_grad()
        losses.append(float(loss))
    with paddle.no_grad():
        logits, _ = _forward(paddle, p, tensor(job.test_x, (-1, 64), job.device), job.net)
    return TrainResult(
        losses=losses,
        logits=array("f", numbers(logits)),
        weights=[array("f", numbers(w)) for w in p],
        place=place(logits),
        compute_dtype=seen,
    )


def checkpoint_save(weights: Sequence[Any], shapes: Sequence[Sequence[int]], path: str, device: str) -> None:
    paddle = _set(device)
    found = {f"w{i}": tensor(w, s, device) for i, (w, s) in enumerate(zip(weights, shapes))}
    paddle.save(found, path)


def checkpoint_load(path: str, shapes: Sequence[Sequence[int]], device: str) -> list[bytes]:
    found = _set(device).load(path)
    return [nparrays.float_bytes(found[f"w{i}"].numpy()) for i in range(len(shapes))]


def compiled(x: Any, w: Any) -> tuple[Any, Any, str]:
    import paddle

    def work(a: Any, b: Any) -> Any:
        return paddle.nn.functional.gelu(paddle.matmul(a, b)) * 2 + a

    return work(x, w), paddle.jit.to_static(work, full_graph=True)(x, w), "paddle.jit.to_static"


def loaders(count: int, device: str) -> list[dict[str, Any]]:
    import numpy

    paddle = _set(device)

    class Counting(paddle.io.Dataset):  # type: ignore[name-defined,misc]
        def __len__(self) -> int:
            return count

        def __getitem__(self, i: int) -> Any:
            return numpy.full((64,), i, numpy.float32), numpy.int64(i)

    found = []
    for workers in (0, 2, 4):
        begin = time.monotonic()
        loader = paddle.io.DataLoader(
            Counting(), batch_size=16, shuffle=True, num_workers=workers, timeout=40 if workers else 0
        )
        labels, sound = [], True
        for x, y in loader:
            labels += [int(v) for v in y.numpy()]
            sound = sound and bool((x.numpy()[:, 0] == y.numpy()).all())
        start, seconds = "fork" if workers else "in-process", round(time.monotonic() - begin, 2)
        found.append({"workers": workers, "start": start, "labels": labels, "sound": sound, "seconds": seconds})
    return found


# --- inference --------------------------------------------------------------------------------------------------


def _model(layers: Sequence[Layer]) -> Any:
    import paddle

    parts = []
    for layer in layers:
        linear = paddle.nn.Linear(layer.inputs, layer.outputs)
        linear.weight.set_value(nparrays.to_numpy(layer.w, (layer.inputs, layer.outputs)))
        linear.bias.set_value(nparrays.to_numpy(layer.b, (layer.outputs,)))
        parts += [linear, paddle.nn.ReLU()]
    return paddle.nn.Sequential(*parts[:-1])


def model_save(layers: Sequence[Layer], path: str, device: str) -> str:
    paddle = _set(device)
    model = _model(layers)
    model.eval()
    paddle.jit.save(model, path, input_spec=[paddle.static.InputSpec([None, 64], "float32", "x")])
    return "paddle.jit"


def model_run(path: str, x: Sequence[float], rows: int, device: str) -> tuple[array[float], str]:
    model = _set(device).jit.load(path)
    model.eval()
    out = model(tensor(x, (rows, 64), device))
    return array("f", numbers(out)), place(out)


def quantised_save(layers: Sequence[Layer], path: str, device: str) -> str:
    paddle = _set(device)
    state = {}
    for i, layer in enumerate(layers):
        q, scale = nparrays.quantise(layer.w, layer.inputs, layer.outputs)
        state[f"q{i}"], state[f"s{i}"] = paddle.to_tensor(q), paddle.to_tensor(scale)
        state[f"b{i}"] = paddle.to_tensor(nparrays.to_numpy(layer.b, (layer.outputs,)))
    paddle.save(state, path)
    return "int8 weights, one scale per output channel"


def quantised_run(path: str, x: Sequence[float], rows: int, device: str) -> tuple[array[float], str]:
    paddle = _set(device)
    state = paddle.load(path)
    t = tensor(x, (rows, 64), device)
    for i in range(3):
        t = paddle.matmul(t, state[f"q{i}"].astype("float32")) * state[f"s{i}"] + state[f"b{i}"]
        t = paddle.nn.functional.relu(t) if i < 2 else t
    return array("f", numbers(t)), place(t)


def onnx_export(layers: Sequence[Layer], path: str) -> None:
    importlib.import_module("paddle2onnx")  # paddle.onnx.export would only say so in a log line
    paddle = _set("cpu")
    stem = path[: -len(".onnx")] if path.endswith(".onnx") else path
    paddle.onnx.export(_model(layers), stem, input_spec=[paddle.static.InputSpec([8, 64], "float32", "x")])


def lm_ops(device: str) -> Any:
    paddle = _set(device)

    class Ops:
        tensor = staticmethod(lambda values, shape: tensor(values, shape, device))
        take = staticmethod(lambda table, ids: paddle.gather(table, paddle.to_tensor(list(ids))))
        reshape = staticmethod(lambda t, shape: t.reshape(list(shape)))
        transpose = staticmethod(lambda t, axes: t.transpose(list(axes)))
        concat = staticmethod(lambda parts, axis: paddle.concat(parts, axis=axis))
        softmax = staticmethod(lambda t: paddle.nn.functional.softmax(t, axis=-1))
        sigmoid = staticmethod(lambda t: paddle.nn.functional.sigmoid(t))
        mean = staticmethod(lambda t: t.mean(axis=-1, keepdim=True))
        rsqrt = staticmethod(paddle.rsqrt)
        numbers = staticmethod(numbers)
        place = staticmethod(place)

    return Ops
