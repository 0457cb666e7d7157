"""TensorFlow. NHWC inside, because its CPU kernels take nothing else; TF32 is off unless it is what is tested."""

from __future__ import annotations

import contextlib
import importlib
import os
import time
from array import array
from collections.abc import Sequence
from typing import Any

from . import nparrays
from .adapter import Layer, TrainJob, TrainResult

DISTRIBUTIONS = ("tensorflow", "tensorflow-cpu", "tensorflow-gpu", "tf-nightly")
MODULE = "tensorflow"


def _tf() -> Any:
    """TensorFlow with growing GPU memory (it would take all of it) and TF32 off."""
    import tensorflow as tf

    for gpu in tf.config.list_physical_devices("GPU"):
        with contextlib.suppress(RuntimeError):  # already in use: then it was set before
            tf.config.experimental.set_memory_growth(gpu, True)
    tf.config.experimental.enable_tensor_float_32_execution(False)
    return tf


def versions() -> dict[str, Any]:
    tf = _tf()
    info = dict(tf.sysconfig.get_build_info())
    gpu = bool(info.get("is_cuda_build"))
    return {
        "framework": str(tf.__version__),
        "wheel_cuda": info.get("cuda_version") if gpu else None,
        "cudnn": str(info["cudnn_version"]) if gpu and "cudnn_version" in info else None,
        "nccl": None,
        "gpu_build": gpu,
    }


def arch_list() -> list[str] | None:
    found = _tf().sysconfig.get_build_info().get("cuda_compute_capabilities")
    return [str(v) for v in found] if found else None


def library_dirs() -> list[str]:
    tf = _tf()
    folder = os.path.dirname(str(tf.__file__))
    return [folder, os.path.join(folder, "python")]


def touch(ctx: Any) -> list[str]:
    tf = _tf()
    with tf.device(_name(ctx.device)):
        a = tf.ones((64, 64))
        tf.linalg.matmul(a, a).numpy()
        tf.nn.conv2d(tf.ones((2, 16, 16, 8)), tf.ones((3, 3, 8, 8)), 1, "SAME").numpy()
    return ["matmul", "conv"]


def seen_gpus() -> list[str]:
    tf = _tf()
    return [
        str(tf.config.experimental.get_device_details(gpu).get("device_name", gpu.name))
        for gpu in tf.config.list_physical_devices("GPU")
    ]


def allocated() -> int | None:
    tf = _tf()
    if not tf.config.list_physical_devices("GPU"):
        return None
    return int(tf.config.experimental.get_memory_info("GPU:0")["peak"])


def _name(device: str) -> str:
    return "/GPU:0" if device == "cuda" else "/CPU:0"


def _device_of(t: Any) -> str:
    return _name("cuda" if place(t) != "cpu" else "cpu")


# --- tensors ----------------------------------------------------------------------------------------------------


def tensor(values: Sequence[float], shape: Sequence[int], device: str) -> Any:
    tf = _tf()
    with tf.device(_name(device)):
        # identity: a constant alone may be left on the host
        return tf.identity(tf.constant(nparrays.to_numpy(values, shape)))


def numbers(t: Any) -> array[float]:
    return nparrays.from_numpy(t.numpy())


def place(t: Any) -> str:
    name = str(t.device)
    return "cuda:" + name.rsplit(":", 1)[1] if "GPU" in name else "cpu"


def modes(device: str) -> list[str]:
    if device != "cuda":
        return ["fp32", "fp16", "bf16"]
    tf = _tf()
    gpus = tf.config.list_physical_devices("GPU")
    details = tf.config.experimental.get_device_details(gpus[0]) if gpus else {}
    return ["fp32", "fp16", *(["tf32", "bf16"] if details.get("compute_capability", (0, 0)) >= (8, 0) else [])]


def matmul(a: Any, b: Any, mode: str) -> Any:
    tf = _tf()
    tf.config.experimental.enable_tensor_float_32_execution(mode == "tf32")
    kind = {"fp32": tf.float32, "tf32": tf.float32, "fp16": tf.float16, "bf16": tf.bfloat16}[mode]
    with tf.device(_device_of(a)):
        return tf.linalg.matmul(tf.cast(a, kind), tf.cast(b, kind))


def conv(x: Any, w: Any, dy: Any) -> tuple[Any, Any, Any]:
    tf = _tf()
    with tf.device(_device_of(x)), tf.GradientTape() as tape:
        tape.watch([x, w])
        image, kernel = tf.transpose(x, (0, 2, 3, 1)), tf.transpose(w, (2, 3, 1, 0))
        y = tf.transpose(tf.nn.conv2d(image, kernel, 1, "SAME"), (0, 3, 1, 2))
        total = tf.reduce_sum(y * dy)
    dx, dw = tape.gradient(total, [x, w])
    return y, dx, dw


def attention(q: Any, k: Any, v: Any, mode: str) -> dict[str, Any]:
    tf = _tf()
    kind = {"fp32": tf.float32, "fp16": tf.float16, "bf16": tf.bfloat16}[mode]
    with tf.device(_device_of(q)):
        q, k, v = (tf.cast(t, kind) for t in (q, k, v))
        scores = tf.linalg.matmul(q, k, transpose_b=True) * tf.cast(q.shape[-1] ** -0.5, kind)
        seen = tf.linalg.band_part(tf.ones(scores.shape[-2:], tf.bool), -1, 0)
        scores = tf.where(seen, tf.cast(scores, tf.float32), -1e9)
        return {"composed": tf.linalg.matmul(tf.cast(tf.nn.softmax(scores), kind), v)}


def bench_matmul(n: int, mode: str, seconds: float) -> list[float]:
    """Wall time of ten products in one graph, each fed by the one before, divided by ten."""
    tf = _tf()
    kind = {"fp32": tf.float32, "fp16": tf.float16, "bf16": tf.bfloat16}[mode]
    with tf.device("/GPU:0"):
        a = tf.cast(tf.random.normal((n, n), seed=1), kind)
        b = tf.cast(tf.random.normal((n, n), seed=2) / n**0.5, kind)

        def chain(x: Any, y: Any) -> Any:
            for _ in range(10):
                x = tf.linalg.matmul(x, y)
            return x[0, 0]

        ten = tf.function(chain)
        times: list[float] = []
        float(ten(a, b))
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            start = time.perf_counter()
            float(ten(a, b))
            times.append((time.perf_counter() - start) * 1e2)
    return times


# --- training ---------------------------------------------------------------------------------------------------


def _forward(tf: Any, p: Sequence[Any], x: Any, net: str, kind: Any) -> Any:
    p, x = [tf.cast(w, kind) for w in p], tf.cast(x, kind)
    if net == "mlp":
        for i in (0, 2):
            x = tf.nn.relu(tf.linalg.matmul(x, p[i]) + p[i + 1])
        return tf.linalg.matmul(x, p[4]) + p[5]
    x = tf.reshape(x, (-1, 8, 8, 1))
    x = tf.nn.relu(tf.nn.conv2d(x, tf.transpose(p[0], (2, 3, 1, 0)), 1, "SAME") + p[1])
    x = tf.nn.max_pool2d(x, 2, 2, "VALID")
    x = tf.nn.relu(tf.nn.conv2d(x, tf.transpose(p[2], (2, 3, 1, 0)), 1, "SAME") + p[3])
    x = tf.reshape(tf.transpose(x, (0, 3, 1, 2)), (-1, 512))
    return tf.linalg.matmul(x, p[4]) + p[5]


def train(job: TrainJob) -> TrainResult:
    tf = _tf()
    kind = {None: tf.float32, "bf16": tf.bfloat16, "fp16": tf.float16}[job.amp]
    scale = 1024.0 if job.amp == "fp16" else 1.0
    seen: list[str] = []
    with tf.device(_name(job.device)):
        p = [tf.Variable(nparrays.to_numpy(w, s)) for w, s in zip(job.weights, job.shapes)]
        m = [tf.Variable(tf.zeros_like(w)) for w in p]

        def update(x: Any, y: Any) -> Any:
            with tf.GradientTape() as tape:
                logits = _forward(tf, p, x, job.net, kind)
                seen[:] = [logits.dtype.name]
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(y, tf.cast(logits, tf.float32))
                loss = tf.reduce_mean(losses) * scale
            for w, v, slope in zip(p, m, tape.gradient(loss, p)):
                v.assign(job.momentum * v + tf.cast(slope, tf.float32) / scale)
                w.assign_sub(job.rate * v)
            return loss / scale

        step = tf.function(update)
        losses = [float(step(tf.constant(x), tf.constant(y))) for x, y in nparrays.minibatches(job)]
        logits = _forward(tf, p, nparrays.to_numpy(job.test_x, (-1, 64)), job.net, tf.float32)
    return TrainResult(
        losses=losses,
        logits=array("f", numbers(logits)),
        weights=[array("f", nparrays.from_numpy(w.numpy())) for w in p],
        place=place(logits),
        compute_dtype=seen[0],
    )


def checkpoint_save(weights: Sequence[Any], shapes: Sequence[Sequence[int]], path: str, device: str) -> None:
    tf = _tf()
    with tf.device(_name(device)):
        p = [tf.Variable(nparrays.to_numpy(w, s)) for w, s in zip(weights, shapes)]
    tf.train.Checkpoint(weights=p).write(path)


def checkpoint_load(path: str, shapes: Sequence[Sequence[int]], device: str) -> list[bytes]:
    tf = _tf()
    with tf.device(_name(device)):
        p = [tf.Variable(tf.zeros(tuple(s))) for s in shapes]
    tf.train.Checkpoint(weights=p).read(path).assert_consumed()
    return [nparrays.float_bytes(w.numpy()) for w in p]


def compiled(x: Any, w: Any) -> tuple[Any, Any, str]:
    tf = _tf()

    def work(a: Any, b: Any) -> Any:
        return tf.nn.gelu(tf.linalg.matmul(a, b), approximate=False) * 2.0 + a

    with tf.device(_device_of(x)):
        return work(x, w), tf.function(work, jit_compile=True)(x, w), "tf.function(jit_compile=True) (XLA)"


def loaders(count: int, device: str) -> list[dict[str, Any]]:
    """tf.data: its workers are threads, so there is no start method to test; shuffled, mapped in parallel."""
    tf = _tf()
    found = []
    for workers in (1, 2, 4):
        begin = time.monotonic()
        data = tf.data.Dataset.range(count).shuffle(count, seed=1)
        data = data.map(lambda i: (tf.fill((64,), tf.cast(i, tf.float32)), i), num_parallel_calls=workers)
        labels, sound = [], True
        for x, y in data.batch(16).prefetch(2):
            labels += [int(v) for v in y.numpy()]
            sound = sound and bool((x.numpy()[:, 0] == y.numpy()).all())
        seconds = round(time.monotonic() - begin, 2)
        found.append({"workers": workers, "start": "threads", "labels": labels, "sound": sound, "seconds": seconds})
    return found


# --- inference --------------------------------------------------------------------------------------------------


def _module(layers: Sequence[Layer], quantised: bool, device: str) -> Any:
    tf = _tf()

    class Perceptron(tf.Module):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            self.parts: list[Any] = []
            for layer in layers:
                bias = tf.Variable(nparrays.to_numpy(layer.b, (layer.outputs,)))
                if quantised:
                    q, scale = nparrays.quantise(layer.w, layer.inputs, layer.outputs)
                    self.parts.append([tf.Variable(q), tf.Variable(scale), bias])
                else:
                    self.parts.append([tf.Variable(nparrays.to_numpy(layer.w, (layer.inputs, layer.outputs))), bias])

        @tf.function(input_signature=[tf.TensorSpec((None, 64), tf.float32)])  # type: ignore[untyped-decorator]
        def __call__(self, x: Any) -> Any:
            for i, part in enumerate(self.parts):
                x = tf.linalg.matmul(x, tf.cast(part[0], tf.float32))
                x = x * part[1] + part[2] if quantised else x + part[1]
                x = tf.nn.relu(x) if i < len(self.parts) - 1 else x
            return x

    with tf.device(_name(device)):
        return Perceptron()


def model_save(layers: Sequence[Layer], path: str, device: str) -> str:
    _tf().saved_model.save(_module(layers, False, device), path)
    return "SavedModel"


def model_run(path: str, x: Sequence[float], rows: int, device: str) -> tuple[array[float], str]:
    tf = _tf()
    with tf.device(_name(device)):
        out = tf.saved_model.load(path)(tensor(x, (rows, 64), device))
    return array("f", numbers(out)), place(out)


def quantised_save(layers: Sequence[Layer], path: str, device: str) -> str:
    """On the CPU TFLite's dynamic-range int8; on a GPU, which TFLite does not use, int8 weights in a SavedModel."""
    tf = _tf()
    if device == "cpu" and hasattr(tf, "lite"):
        module = _module(layers, False, device)
        converter = tf.lite.TFLiteConverter.from_concrete_functions([module.__call__.get_concrete_function()], module)
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        with open(path, "wb") as file:
            file.write(converter.convert())
        return "TFLite, dynamic-range int8"
    tf.saved_model.save(_module(layers, True, device), path)
    return "int8 weights, one scale per output channel (SavedModel)"


def quantised_run(path: str, x: Sequence[float], rows: int, device: str) -> tuple[array[float], str]:
    if os.path.isdir(path):
        return model_run(path, x, rows, device)
    tf = _tf()
    interpreter = tf.lite.Interpreter(model_path=path)
    entry = interpreter.get_input_details()[0]["index"]
    interpreter.resize_tensor_input(entry, (rows, 64))
    interpreter.allocate_tensors()
    interpreter.set_tensor(entry, nparrays.to_numpy(x, (rows, 64)))
    interpreter.invoke()
    out = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
    return array("f", nparrays.from_numpy(out)), "cpu"


def onnx_export(layers: Sequence[Layer], path: str) -> None:
    tf2onnx = importlib.import_module("tf2onnx")
    tf = _tf()
    module = _module(layers, False, "cpu")
    spec = (tf.TensorSpec((8, 64), tf.float32, name="x"),)
    tf2onnx.convert.from_function(module.__call__, input_signature=spec, opset=17, output_path=path)


def lm_ops(device: str) -> Any:
    tf = _tf()
    where = tf.device(_name(device))
    where.__enter__()  # for the rest of this check's process

    class Ops:
        tensor = staticmethod(lambda values, shape: tensor(values, shape, device))
        take = staticmethod(lambda table, ids: tf.gather(table, list(ids)))
        reshape = staticmethod(lambda t, shape: tf.reshape(t, tuple(shape)))
        transpose = staticmethod(lambda t, axes: tf.transpose(t, tuple(axes)))
        concat = staticmethod(lambda parts, axis: tf.concat(parts, axis))
        softmax = staticmethod(lambda t: tf.nn.softmax(t))
        sigmoid = staticmethod(lambda t: tf.sigmoid(t))
        mean = staticmethod(lambda t: tf.reduce_mean(t, axis=-1, keepdims=True))
        rsqrt = staticmethod(lambda t: tf.math.rsqrt(t))
        numbers = staticmethod(numbers)
        place = staticmethod(place)

    return Ops
