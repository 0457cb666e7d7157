"""ONNX Runtime: inference only. Models are written by :mod:`..onnx_wire`, so the ``onnx`` package is not needed.

It lists the CUDA provider whenever the library was built with it, and falls back to the CPU when it does not load, so
neither ``get_available_providers()`` nor the exit code is evidence. What counts is which provider ran each node: read
from the session's own profile.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from array import array
from collections.abc import Sequence
from typing import Any

from .. import onnx_wire as wire
from . import reference
from .adapter import Layer

DISTRIBUTIONS = ("onnxruntime-gpu", "onnxruntime")
MODULE = "onnxruntime"


class Held:
    """A host array and the place where the node that made it ran."""

    def __init__(self, value: Any, place: str) -> None:
        self.value, self.place = value, place


_device = "cpu"
"""Device of the tensors made last; ONNX Runtime's inputs carry none."""


def versions() -> dict[str, Any]:
    import onnxruntime

    gpu = "CUDAExecutionProvider" in onnxruntime.get_available_providers()
    cuda = None
    try:
        from onnxruntime.capi import build_and_package_info as info

        cuda = getattr(info, "cuda_version", None) or None
    except ImportError:
        pass
    return {
        "framework": str(onnxruntime.__version__),
        "wheel_cuda": cuda,
        "cudnn": None,
        "nccl": None,
        "gpu_build": gpu,
    }


def arch_list() -> list[str] | None:
    return None


def library_dirs() -> list[str]:
    import onnxruntime

    return [os.path.join(os.path.dirname(str(onnxruntime.__file__)), "capi")]


def touch(ctx: Any) -> list[str]:
    one = tensor(array("f", [1.0] * 4096), (64, 64), ctx.device)
    numbers(matmul(one, one, "fp32"))
    x = tensor(array("f", [1.0] * 4096), (2, 8, 16, 16), ctx.device)
    w = tensor(array("f", [1.0] * 576), (8, 8, 3, 3), ctx.device)
    numbers(conv(x, w, None)[0])
    return ["matmul", "conv"]


def seen_gpus() -> list[str]:
    import onnxruntime

    return [name for name in onnxruntime.get_available_providers() if name.startswith(("CUDA", "Tensorrt"))]


def _providers(device: str) -> list[Any]:
    if device != "cuda":
        return ["CPUExecutionProvider"]
    import onnxruntime

    # TF32 off: a float32 product must be one. The option is from 1.17; older releases refuse it
    number = tuple(int(part) for part in str(onnxruntime.__version__).split(".")[:2])
    options = {"use_tf32": "0"} if number >= (1, 17) else {}
    return [("CUDAExecutionProvider", options), "CPUExecutionProvider"]


def run_model(model: bytes, feeds: dict[str, Any], device: str, outputs: int = 1) -> list[Held]:
    """Run a model once; each output with the provider that ran the compute nodes: ``cuda:0``, ``cpu`` or ``mixed``.

    Raises whatever ONNX Runtime raises.
    """
    import onnxruntime

    if device == "cuda" and hasattr(onnxruntime, "preload_dlls"):
        onnxruntime.preload_dlls()  # CUDA and cuDNN from the nvidia-* wheels, from 1.21
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 2
    profiled = device == "cuda"
    with tempfile.TemporaryDirectory() as folder:
        if profiled:
            options.enable_profiling = True
            options.profile_file_prefix = os.path.join(folder, "profile")
        session = onnxruntime.InferenceSession(model, options, providers=_providers(device))
        values = session.run(None, feeds)
        place = "cpu"
        if profiled:
            place = provider_place(json.loads(_read(session.end_profiling())), session.get_providers())
    return [Held(value, place) for value in values[:outputs]]


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


MOVING = ("MemcpyToHost", "MemcpyFromHost", "Shape", "Gather", "Unsqueeze", "Squeeze", "Concat", "Reshape", "Cast")
"""Nodes that ONNX Runtime rightly puts on the CPU: copies and arithmetic on shapes."""


def provider_place(events: Sequence[dict[str, Any]], providers: Sequence[str]) -> str:
    """Where the nodes of a profile ran. Pure.

    ``events`` is the profile (a list of trace events); the session's provider list only decides when the profile
    names no node, as it did before 1.4.
    """
    used = {
        event["args"]["provider"]
        for event in events
        if event.get("cat") == "Node"
        and event.get("args", {}).get("provider")
        and event["args"].get("op_name") not in MOVING
    }
    if not used:
        return "cuda:0" if providers and providers[0].startswith("CUDA") else "cpu"
    if used == {"CPUExecutionProvider"}:
        return "cpu"
    return "mixed" if "CPUExecutionProvider" in used else "cuda:0"


# --- tensors ----------------------------------------------------------------------------------------------------


def tensor(values: Sequence[float], shape: Sequence[int], device: str) -> Any:
    import numpy

    global _device
    _device = device
    return Held(numpy.array(values, numpy.float32).reshape(tuple(shape)), device)


def numbers(t: Any) -> array[float]:
    return array("d", t.value.astype("float64").reshape(-1).tobytes())


def place(t: Any) -> str:
    return str(t.place)


def modes(device: str) -> list[str]:
    return ["fp32", "fp16"]


def _shape(t: Any) -> list[int]:
    return [int(extent) for extent in t.value.shape]


def matmul(a: Any, b: Any, mode: str) -> Any:
    kind = wire.FLOAT16 if mode == "fp16" else wire.FLOAT
    shape = [a.value.shape[0], b.value.shape[1]]
    model = wire.model(
        [wire.node("MatMul", ["a", "b"], ["c"])],
        [],
        [wire.value_info("a", kind, _shape(a)), wire.value_info("b", kind, _shape(b))],
        [wire.value_info("c", kind, shape)],
    )
    dtype = "float16" if mode == "fp16" else "float32"
    return run_model(model, {"a": a.value.astype(dtype), "b": b.value.astype(dtype)}, _device)[0]


def conv(x: Any, w: Any, dy: Any) -> tuple[Any, Any, Any]:
    shape = [x.value.shape[0], w.value.shape[0], *x.value.shape[2:]]
    model = wire.model(
        [wire.node("Conv", ["x", "w"], ["y"], {"pads": [1, 1, 1, 1]})],
        [],
        [wire.value_info("x", wire.FLOAT, _shape(x)), wire.value_info("w", wire.FLOAT, _shape(w))],
        [wire.value_info("y", wire.FLOAT, shape)],
    )
    return run_model(model, {"x": x.value, "w": w.value}, _device)[0], None, None


def attention(q: Any, k: Any, v: Any, mode: str) -> dict[str, Any]:
    import numpy

    kind, dtype = (wire.FLOAT16, "float16") if mode == "fp16" else (wire.FLOAT, "float32")
    length, width = q.value.shape[2:]
    mask = numpy.triu(numpy.full((length, length), -10000.0), 1).astype(dtype)
    scale = numpy.array(width**-0.5, dtype)
    model = wire.model(
        [
            wire.node("Transpose", ["k"], ["kt"], {"perm": [0, 1, 3, 2]}),
            wire.node("MatMul", ["q", "kt"], ["s"]),
            wire.node("Mul", ["s", "scale"], ["t"]),
            wire.node("Add", ["t", "mask"], ["u"]),
            wire.node("Softmax", ["u"], ["p"], {"axis": -1}),
            wire.node("MatMul", ["p", "v"], ["o"]),
        ],
        [
            wire.tensor("scale", kind, [], scale.tobytes()),
            wire.tensor("mask", kind, [length, length], mask.tobytes()),
        ],
        [wire.value_info(name, kind, _shape(q)) for name in "qkv"],
        [wire.value_info("o", kind, _shape(q))],
    )
    feeds = {name: t.value.astype(dtype) for name, t in zip("qkv", (q, k, v))}
    return {"graph": run_model(model, feeds, _device)[0]}


def bench_matmul(n: int, mode: str, seconds: float) -> list[float]:
    """Wall time with inputs and output bound to GPU memory: no copies are timed."""
    import numpy
    import onnxruntime

    dtype, kind = ("float16", wire.FLOAT16) if mode == "fp16" else ("float32", wire.FLOAT)
    ends = [wire.value_info("a", kind, [n, n]), wire.value_info("b", kind, [n, n])]
    model = wire.model([wire.node("MatMul", ["a", "b"], ["c"])], [], ends, [wire.value_info("c", kind, [n, n])])
    session = onnxruntime.InferenceSession(model, providers=_providers("cuda"))
    if not session.get_providers()[0].startswith("CUDA"):
        raise RuntimeError("the session has no CUDA provider: it fell back to the CPU")
    generator = numpy.random.default_rng(1)
    binding = session.io_binding()
    for name in ("a", "b"):
        host = generator.standard_normal((n, n), numpy.float32).astype(dtype)
        binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(host, "cuda", 0))
    binding.bind_ortvalue_output("c", onnxruntime.OrtValue.ortvalue_from_shape_and_type([n, n], dtype, "cuda", 0))
    times: list[float] = []
    end = time.monotonic() + seconds
    session.run_with_iobinding(binding)
    binding.synchronize_outputs()
    while time.monotonic() < end:
        start = time.perf_counter()
        session.run_with_iobinding(binding)
        binding.synchronize_outputs()
        times.append((time.perf_counter() - start) * 1e3)
    return times


# --- inference --------------------------------------------------------------------------------------------------


def _perceptron(layers: Sequence[Layer]) -> bytes:
    nodes, weights, last = [], [], "x"
    for i, layer in enumerate(layers):
        weights += [
            wire.floats(f"w{i}", layer.w, (layer.inputs, layer.outputs)),
            wire.floats(f"b{i}", layer.b, (layer.outputs,)),
        ]
        end = i == len(layers) - 1
        nodes.append(wire.node("Gemm", [last, f"w{i}", f"b{i}"], ["y" if end else f"g{i}"]))
        if not end:
            nodes.append(wire.node("Relu", [f"g{i}"], [f"r{i}"]))
            last = f"r{i}"
    ends = [wire.value_info("x", wire.FLOAT, ["rows", 64])], [wire.value_info("y", wire.FLOAT, ["rows", 10])]
    return wire.model(nodes, weights, *ends)


def _quantised(layers: Sequence[Layer]) -> bytes:
    """QDQ: int8 weights with one scale per output channel, dequantised before each product."""
    nodes, weights, last = [], [], "x"
    for i, layer in enumerate(layers):
        columns = array("f")
        for j in range(layer.outputs):
            columns.extend(layer.w[j :: layer.outputs])
        q, scales = reference.quantise_rows(columns, layer.outputs, layer.inputs)
        weights += [
            wire.int8s(f"q{i}", q, (layer.outputs, layer.inputs)),
            wire.floats(f"s{i}", scales, (layer.outputs,)),
            wire.int8s(f"z{i}", [0] * layer.outputs, (layer.outputs,)),
            wire.floats(f"b{i}", layer.b, (layer.outputs,)),
        ]
        end = i == len(layers) - 1
        nodes += [
            wire.node("DequantizeLinear", [f"q{i}", f"s{i}", f"z{i}"], [f"w{i}"], {"axis": 0}),
            wire.node("Gemm", [last, f"w{i}", f"b{i}"], ["y" if end else f"g{i}"], {"transB": 1}),
        ]
        if not end:
            nodes.append(wire.node("Relu", [f"g{i}"], [f"r{i}"]))
            last = f"r{i}"
    ends = [wire.value_info("x", wire.FLOAT, ["rows", 64])], [wire.value_info("y", wire.FLOAT, ["rows", 10])]
    return wire.model(nodes, weights, *ends)


def model_save(layers: Sequence[Layer], path: str, device: str) -> str:
    _write(path, _perceptron(layers))
    return "ONNX opset 17"


def _write(path: str, content: bytes) -> None:
    with open(path, "wb") as file:
        file.write(content)


def model_run(path: str, x: Sequence[float], rows: int, device: str) -> tuple[array[float], str]:
    with open(path, "rb") as file:
        model = file.read()
    held = tensor(x, (rows, 64), device)
    out = run_model(model, {"x": held.value}, device)[0]
    return array("f", numbers(out)), out.place


def quantised_save(layers: Sequence[Layer], path: str, device: str) -> str:
    _write(path, _quantised(layers))
    return "QDQ, int8 weights, one scale per output channel"


quantised_run = model_run


class Node:
    """A value in a graph that is being built: an operation with inputs, or an array."""

    counter = 0

    def __init__(self, shape: Sequence[int], op: str = "", inputs: Sequence[Any] = (), **attributes: Any) -> None:
        self.shape, self.op, self.inputs, self.attributes = tuple(shape), op, list(inputs), attributes
        self.value: Any = None
        self.place = ""
        Node.counter += 1
        self.name = f"n{Node.counter}"

    def _two(self, op: str, other: Any) -> Node:
        if not isinstance(other, Node):
            other = constant([float(other)], (1,))
        longer, shorter = sorted((self.shape, other.shape), key=len, reverse=True)
        shorter = (1,) * (len(longer) - len(shorter)) + shorter
        shape = [max(a, b) for a, b in zip(longer, shorter)]
        return Node(shape, op, [self, other])

    def __add__(self, other: Any) -> Node:
        return self._two("Add", other)

    def __mul__(self, other: Any) -> Node:
        return self._two("Mul", other)

    def __matmul__(self, other: Node) -> Node:
        return Node((*self.shape[:-1], other.shape[-1]), "MatMul", [self, other])


def constant(values: Sequence[float], shape: Sequence[int]) -> Node:
    import numpy

    node = Node(shape)
    node.value = numpy.array(values, numpy.float32).reshape(tuple(shape))
    return node


def integers(values: Sequence[int]) -> Node:
    import numpy

    node = Node((len(values),))
    node.value = numpy.array(values, numpy.int64)
    return node


def settle(wanted: Sequence[Node], device: str) -> list[Node]:
    """Run the graph that leads to ``wanted`` as one model; its leaves become inputs. Returns plain values."""
    order: list[Node] = []
    seen: set[str] = set()

    def visit(item: Node) -> None:
        if item.name not in seen:
            seen.add(item.name)
            for child in item.inputs:
                visit(child)
            order.append(item)

    for item in wanted:
        visit(item)
    leaves = [item for item in order if item.value is not None]
    kinds = {"float32": wire.FLOAT, "int64": wire.INT64}
    model = wire.model(
        [wire.node(n.op, [c.name for c in n.inputs], [n.name], n.attributes) for n in order if n.value is None],
        [],
        [wire.value_info(n.name, kinds[str(n.value.dtype)], n.shape) for n in leaves],
        [wire.value_info(n.name, wire.FLOAT, n.shape) for n in wanted],
    )
    results = run_model(model, {n.name: n.value for n in leaves}, device, len(wanted))
    out = []
    for item, held in zip(wanted, results):
        ready = Node(item.shape)
        ready.value, ready.place = held.value, held.place
        out.append(ready)
    return out


def lm_ops(device: str) -> Any:
    def transpose(t: Node, axes: Sequence[int]) -> Node:
        return Node([t.shape[a] for a in axes], "Transpose", [t], perm=list(axes))

    def concat(parts: Sequence[Node], axis: int) -> Node:
        shape = list(parts[0].shape)
        shape[axis] = sum(p.shape[axis] for p in parts)
        return Node(shape, "Concat", parts, axis=axis)

    class Ops:
        tensor = staticmethod(lambda values, shape: constant(values, shape))
        take = staticmethod(lambda t, ids: Node((len(ids), t.shape[1]), "Gather", [t, integers(ids)], axis=0))
        reshape = staticmethod(lambda t, shape: Node(shape, "Reshape", [t, integers(shape)]))
        softmax = staticmethod(lambda t: Node(t.shape, "Softmax", [t], axis=-1))
        sigmoid = staticmethod(lambda t: Node(t.shape, "Sigmoid", [t]))
        mean = staticmethod(lambda t: Node((*t.shape[:-1], 1), "ReduceMean", [t], axes=[-1]))
        rsqrt = staticmethod(lambda t: Node(t.shape, "Reciprocal", [Node(t.shape, "Sqrt", [t])]))
        numbers = staticmethod(numbers)
        place = staticmethod(place)

    Ops.transpose, Ops.concat = staticmethod(transpose), staticmethod(concat)  # type: ignore[attr-defined]
    Ops.settle = staticmethod(lambda wanted: settle(wanted, device))  # type: ignore[attr-defined]
    return Ops
