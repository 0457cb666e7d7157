"""Between flat sequences and numpy arrays, for the frameworks that bring numpy; and nets in a numpy-like namespace."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any


def to_numpy(values: Sequence[float], shape: Sequence[int]) -> Any:
    """A float32 numpy array of its own memory."""
    import numpy

    return numpy.array(values, numpy.float32).reshape(tuple(shape))


def from_numpy(value: Any) -> array[float]:
    """Flat ``array('d')`` of anything numpy can read, half types included."""
    import numpy

    flat = numpy.asarray(value).astype(numpy.float64).reshape(-1)
    return array("d", flat.tobytes())


def float_bytes(value: Any) -> bytes:
    """The float32 bytes of an array, row major."""
    import numpy

    return bytes(numpy.ascontiguousarray(numpy.asarray(value), numpy.float32).tobytes())


def quantise(w: Sequence[float], inputs: int, outputs: int) -> tuple[Any, Any]:
    """int8 (inputs, outputs) and one float32 scale per output, as numpy arrays."""
    import numpy

    full = to_numpy(w, (inputs, outputs))
    scale = (numpy.abs(full).max(0) / 127.0).astype(numpy.float32)
    return numpy.clip(numpy.round(full / scale), -127, 127).astype(numpy.int8), scale


def save_layers(layers: Sequence[Any], path: str, quantised: bool) -> None:
    """A perceptron as .npz at exactly ``path``."""
    import numpy

    values: dict[str, Any] = {}
    for i, layer in enumerate(layers):
        if quantised:
            values[f"q{i}"], values[f"s{i}"] = quantise(layer.w, layer.inputs, layer.outputs)
        else:
            values[f"w{i}"] = to_numpy(layer.w, (layer.inputs, layer.outputs))
        values[f"b{i}"] = to_numpy(layer.b, (layer.outputs,))
    with open(path, "wb") as file:
        numpy.savez(file, **values)


def minibatches(job: Any) -> list[tuple[Any, Any]]:
    """The job's batches in order: float32 (batch, 64) and int32 (batch,)."""
    import numpy

    x, y = to_numpy(job.train_x, (-1, 64)), numpy.array(job.train_y, numpy.int32)
    order = numpy.array(job.order)
    return [(x[order[i : i + job.batch]], y[order[i : i + job.batch]]) for i in range(0, len(order), job.batch)]
