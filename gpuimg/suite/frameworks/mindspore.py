"""MindSpore. Its ``run_check()`` swallows exceptions, so it is not asked; what it prints is read by the runner.

GPU support ended with 2.2 on PyPI's x86-64 wheels (plugins for CUDA 11.1 and 11.6, nothing newer than sm_80).
"""

from __future__ import annotations

import glob
import os
import re
import time
from array import array
from collections.abc import Sequence
from typing import Any

from . import nparrays
from .adapter import Layer, TrainJob, TrainResult

DISTRIBUTIONS = ("mindspore", "mindspore-gpu")
MODULE = "mindspore"


def _folder() -> str:
    import mindspore

    return os.path.dirname(str(mindspore.__file__))


def _first_sum(ms: Any) -> None:
    """One addition: the first one loads NumPy into the binary modules, which is where 2.10.0 stumbles over NumPy 2.

    It prints NumPy's traceback and may or may not raise; products alone never get there.
    """
    (ms.Tensor([1.0]) + ms.Tensor([2.0])).asnumpy()
    ms.Tensor([1.0]) + 1


def versions() -> dict[str, Any]:
    import mindspore

    _first_sum(mindspore)
    plugins = glob.glob(os.path.join(_folder(), "lib", "plugin", "libmindspore_gpu.so.*"))
    found = sorted(m.group(1) for m in (re.search(r"\.so\.(\d+\.\d+)$", p) for p in plugins) if m)
    return {
        "framework": str(mindspore.__version__),
        # several plugins may lie there and the loader takes the one that fits: then it is not one version
        "wheel_cuda": found[0] if len(found) == 1 else None,
        "wheel_cuda_plugins": found,
        "cudnn": None,
        "nccl": None,
        "gpu_build": bool(found),
    }


def arch_list() -> list[str] | None:
    return None


def library_dirs() -> list[str]:
    return [os.path.join(_folder(), "lib"), os.path.join(_folder(), "lib", "plugin")]


def _set(device: str) -> Any:
    import mindspore

    target = "GPU" if device == "cuda" else "CPU"
    if hasattr(mindspore, "set_device"):
        mindspore.set_device(target)
        mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
    else:
        mindspore.set_context(mode=mindspore.PYNATIVE_MODE, device_target=target)
    return mindspore


def touch(ctx: Any) -> list[str]:
    ms = _set(ctx.device)
    a = ms.ops.ones((64, 64), ms.float32)
    ms.ops.matmul(a, a).asnumpy()
    ms.ops.conv2d(ms.ops.ones((2, 8, 16, 16), ms.float32), ms.ops.ones((8, 8, 3, 3), ms.float32)).asnumpy()
    return ["matmul", "conv"]


def seen_gpus() -> list[str]:
    import mindspore

    return ["GPU"] if mindspore.get_context("device_target") == "GPU" else []


# --- tensors ----------------------------------------------------------------------------------------------------


def tensor(values: Sequence[float], shape: Sequence[int], device: str) -> Any:
    return _set(device).Tensor(nparrays.to_numpy(values, shape))


def numbers(t: Any) -> array[float]:
    import mindspore

    return nparrays.from_numpy(t.astype(mindspore.float32).asnumpy())


def place(t: Any) -> str:
    """MindSpore's tensors do not say where they lie; the context's target does, and the driver's word decides."""
    import mindspore

    return "cuda:0" if mindspore.get_context("device_target") == "GPU" else "cpu"


def modes(device: str) -> list[str]:
    return ["fp32", "fp16"]


def matmul(a: Any, b: Any, mode: str) -> Any:
    import mindspore

    _first_sum(mindspore)
    if mode == "fp16":
        a, b = a.astype(mindspore.float16), b.astype(mindspore.float16)
    return mindspore.ops.matmul(a, b)


def _conv2d(ms: Any, x: Any, w: Any) -> Any:
    return ms.ops.conv2d(x, w, pad_mode="pad", padding=1)


def conv(x: Any, w: Any, dy: Any) -> tuple[Any, Any, Any]:
    import mindspore as ms

    def total(image: Any, kernel: Any) -> Any:
        return (_conv2d(ms, image, kernel) * dy).sum()

    dx, dw = ms.grad(total, grad_position=(0, 1))(x, w)
    return _conv2d(ms, x, w), dx, dw


def attention(q: Any, k: Any, v: Any, mode: str) -> dict[str, Any]:
    import mindspore as ms
    import numpy

    kind = {"fp32": ms.float32, "fp16": ms.float16}[mode]
    q, k, v = (t.astype(kind) for t in (q, k, v))
    length, width = q.shape[-2:]
    mask = ms.Tensor(numpy.triu(numpy.full((length, length), -1e9, numpy.float32), 1))
    scores = ms.ops.matmul(q, k.transpose((0, 1, 3, 2))).astype(ms.float32) * width**-0.5 + mask
    return {"composed": ms.ops.matmul(ms.ops.softmax(scores, axis=-1).astype(kind), v)}


# --- training ---------------------------------------------------------------------------------------------------


def _forward(ms: Any, p: Sequence[Any], x: Any, net: str, kind: Any) -> Any:
    ops = ms.ops
    p, x = [w.astype(kind) for w in p], x.astype(kind)
    if net == "mlp":
        for i in (0, 2):
            x = ops.relu(ops.matmul(x, p[i]) + p[i + 1])
        return ops.matmul(x, p[4]) + p[5]
    x = x.reshape((-1, 1, 8, 8))
    x = ops.relu(_conv2d(ms, x, p[0]) + p[1].reshape((1, -1, 1, 1)))
    x = ops.max_pool2d(x, 2, 2)
    x = ops.relu(_conv2d(ms, x, p[2]) + p[3].reshape((1, -1, 1, 1)))
    return ops.matmul(x.reshape((x.shape[0], -1)), p[4]) + p[5]


def train(job: TrainJob) -> TrainResult:
    ms = _set(job.device)
    kind = ms.float16 if job.amp == "fp16" else ms.float32
    scale = 1024.0 if job.amp == "fp16" else 1.0
    p = ms.ParameterTuple(
        [
            ms.Parameter(ms.Tensor(nparrays.to_numpy(w, s)), name=f"p{i}")
            for i, (w, s) in enumerate(zip(job.weights, job.shapes))
        ]
    )
    optimiser = ms.nn.Momentum(p, learning_rate=job.rate, momentum=job.momentum)
    seen = ["float32"]

    def loss_of(x: Any, y: Any) -> Any:
        logits = _forward(ms, p, x, job.net, kind)
        seen[0] = str(logits.dtype).rsplit(".", 1)[-1].lower()
        return ms.ops.cross_entropy(logits.astype(ms.float32), y) * scale

    step = ms.value_and_grad(loss_of, None, p)
    losses = []
    for x, y in nparrays.minibatches(job):
        loss, slopes = step(ms.Tensor(x), ms.Tensor(y))
        optimiser(tuple(slope / scale for slope in slopes))
        losses.append(float(loss.asnumpy()) / scale)
    logits = _forward(ms, p, tensor(job.test_x, (-1, 64), job.device), job.net, ms.float32)
    return TrainResult(
        losses=losses,
        logits=array("f", numbers(logits)),
        weights=[array("f", nparrays.from_numpy(w.asnumpy())) for w in p],
        place=place(logits),
        compute_dtype={"float16": "float16"}.get(seen[0], seen[0]),
    )


def checkpoint_save(weights: Sequence[Any], shapes: Sequence[Sequence[int]], path: str, device: str) -> None:
    ms = _set(device)
    rows = [
        {"name": f"w{i}", "data": ms.Tensor(nparrays.to_numpy(w, s))} for i, (w, s) in enumerate(zip(weights, shapes))
    ]
    ms.save_checkpoint(rows, path + ".ckpt")


def checkpoint_load(path: str, shapes: Sequence[Sequence[int]], device: str) -> list[bytes]:
    found = _set(device).load_checkpoint(path + ".ckpt")
    return [nparrays.float_bytes(found[f"w{i}"].asnumpy()) for i in range(len(shapes))]


def compiled(x: Any, w: Any) -> tuple[Any, Any, str]:
    import mindspore as ms

    def work(a: Any, b: Any) -> Any:
        return ms.ops.gelu(ms.ops.matmul(a, b)) * 2 + a

    # the graph compiler reads the function's source with inspect, which a zip archive gives as well
    return work(x, w), ms.jit(work)(x, w), "mindspore.jit (graph mode)"


def loaders(count: int, device: str) -> list[dict[str, Any]]:
    import numpy

    ms = _set(device)

    class Counting:
        def __len__(self) -> int:
            return count

        def __getitem__(self, i: int) -> Any:
            return numpy.full((64,), i, numpy.float32), numpy.int64(i)

    found = []
    # MindSpore refuses more workers than the machine has cores
    most = min(4, os.cpu_count() or 1)
    for workers, processes in sorted({(1, False), (most, False), (min(2, most), True), (most, True)}):
        begin = time.monotonic()
        data = ms.dataset.GeneratorDataset(
            Counting(),
            ["x", "y"],
            shuffle=True,
            num_parallel_workers=workers,
            python_multiprocessing=processes,
            max_rowsize=1,
        ).batch(16)
        labels, sound = [], True
        for x, y in data.create_tuple_iterator(output_numpy=True, num_epochs=1):
            labels += [int(v) for v in y]
            sound = sound and bool((x[:, 0] == y).all())
        start, seconds = "fork" if processes else "threads", round(time.monotonic() - begin, 2)
        found.append({"workers": workers, "start": start, "labels": labels, "sound": sound, "seconds": seconds})
    return found


# --- inference --------------------------------------------------------------------------------------------------


def _cell(ms: Any, layers: Sequence[Layer]) -> Any:
    parts: list[Any] = []
    for layer in layers:
        # MindSpore's Dense holds (outputs, inputs)
        w = nparrays.to_numpy(layer.w, (layer.inputs, layer.outputs)).T.copy()
        dense = ms.nn.Dense(layer.inputs, layer.outputs)
        dense.weight.set_data(ms.Tensor(w))
        dense.bias.set_data(ms.Tensor(nparrays.to_numpy(layer.b, (layer.outputs,))))
        parts += [dense, ms.nn.ReLU()]
    return ms.nn.SequentialCell(*parts[:-1])


def model_save(layers: Sequence[Layer], path: str, device: str) -> str:
    ms = _set(device)
    example = ms.Tensor(nparrays.to_numpy([0.0] * 512, (8, 64)))
    ms.export(_cell(ms, layers), example, file_name=path, file_format="MINDIR")
    return "MindIR"


def model_run(path: str, x: Sequence[float], rows: int, device: str) -> tuple[array[float], str]:
    ms = _set(device)
    graph = ms.nn.GraphCell(ms.load(path + ".mindir"))
    out = graph(tensor(x, (rows, 64), device))
    return array("f", numbers(out)), place(out)


def quantised_save(layers: Sequence[Layer], path: str, device: str) -> str:
    ms = _set(device)
    rows = []
    for i, layer in enumerate(layers):
        q, scale = nparrays.quantise(layer.w, layer.inputs, layer.outputs)
        bias = nparrays.to_numpy(layer.b, (layer.outputs,))
        rows += [{"name": f"{k}{i}", "data": ms.Tensor(v)} for k, v in (("q", q), ("s", scale), ("b", bias))]
    ms.save_checkpoint(rows, path + ".ckpt")
    return "int8 weights, one scale per output channel"


def quantised_run(path: str, x: Sequence[float], rows: int, device: str) -> tuple[array[float], str]:
    ms = _set(device)
    state = ms.load_checkpoint(path + ".ckpt")
    t = tensor(x, (rows, 64), device)
    for i in range(3):
        t = ms.ops.matmul(t, state[f"q{i}"].astype(ms.float32)) * state[f"s{i}"] + state[f"b{i}"]
        t = ms.ops.relu(t) if i < 2 else t
    return array("f", numbers(t)), place(t)


def onnx_export(layers: Sequence[Layer], path: str) -> None:
    ms = _set("cpu")
    stem = path[: -len(".onnx")] if path.endswith(".onnx") else path
    example = ms.Tensor(nparrays.to_numpy([0.0] * 512, (8, 64)))
    ms.export(_cell(ms, layers), example, file_name=stem, file_format="ONNX")


def lm_ops(device: str) -> Any:
    ms = _set(device)
    ops = ms.ops

    class Ops:
        tensor = staticmethod(lambda values, shape: tensor(values, shape, device))
        take = staticmethod(lambda table, ids: ops.gather(table, ms.Tensor(list(ids), ms.int32), 0))
        reshape = staticmethod(lambda t, shape: t.reshape(tuple(shape)))
        transpose = staticmethod(lambda t, axes: t.transpose(tuple(axes)))
        concat = staticmethod(lambda parts, axis: ops.cat(tuple(parts), axis=axis))
        softmax = staticmethod(lambda t: ops.softmax(t, axis=-1))
        sigmoid = staticmethod(lambda t: ops.sigmoid(t))
        mean = staticmethod(lambda t: t.mean(axis=-1, keep_dims=True))
        rsqrt = staticmethod(lambda t: ops.rsqrt(t))
        numbers = staticmethod(numbers)
        place = staticmethod(place)

    return Ops
