"""ONNX models as bytes, without the ``onnx`` package: enough protobuf to test ONNX Runtime on its own.

Field numbers are those of onnx.proto (ONNX IR 8, opset 17): https://github.com/onnx/onnx/blob/main/onnx/onnx.proto.
Only what the checks need: nodes with integer, float and integer-list attributes, dense initialisers, typed inputs and
outputs. Pure; standard library only.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

FLOAT, UINT8, INT8, INT64, FLOAT16 = 1, 2, 3, 7, 10
"""TensorProto.DataType."""
IR_VERSION, OPSET = 8, 17


def varint(value: int) -> bytes:
    """Base-128 varint; negative numbers as 64-bit two's complement."""
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field: int, value: int) -> bytes:
    """A varint field."""
    return varint(field << 3) + varint(value)


def block(field: int, content: bytes) -> bytes:
    """A length-delimited field: message, string, bytes."""
    return varint(field << 3 | 2) + varint(len(content)) + content


def text(field: int, value: str) -> bytes:
    return block(field, value.encode("utf-8"))


def tensor(name: str, kind: int, shape: Sequence[int], raw: bytes) -> bytes:
    """TensorProto with raw little-endian data."""
    dims = b"".join(number(1, extent) for extent in shape)
    return dims + number(2, kind) + text(8, name) + block(9, raw)


def floats(name: str, values: Sequence[float], shape: Sequence[int]) -> bytes:
    return tensor(name, FLOAT, shape, array("f", values).tobytes())


def int64s(name: str, values: Sequence[int], shape: Sequence[int]) -> bytes:
    return tensor(name, INT64, shape, array("q", values).tobytes())


def int8s(name: str, values: Sequence[int], shape: Sequence[int]) -> bytes:
    return tensor(name, INT8, shape, array("b", values).tobytes())


def attribute(name: str, value: int | float | Sequence[int]) -> bytes:
    """AttributeProto; the type follows the value. TypeError for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float, list, tuple)):
        raise TypeError(f"attribute {name}: {type(value).__name__}")
    if isinstance(value, float):
        return text(1, name) + varint(2 << 3 | 5) + struct.pack("<f", value) + number(20, 1)
    if isinstance(value, int):
        return text(1, name) + number(3, value) + number(20, 2)
    return text(1, name) + b"".join(number(8, item) for item in value) + number(20, 7)


def node(op: str, inputs: Sequence[str], outputs: Sequence[str], attributes: Mapping[str, Any] | None = None) -> bytes:
    """NodeProto, named after its first output."""
    content = b"".join(text(1, name) for name in inputs) + b"".join(text(2, name) for name in outputs)
    content += text(3, outputs[0]) + text(4, op)
    return content + b"".join(block(5, attribute(k, v)) for k, v in sorted((attributes or {}).items()))


def value_info(name: str, kind: int, shape: Sequence[int | str]) -> bytes:
    """ValueInfoProto; a word as extent is a symbolic dimension."""
    dims = b"".join(block(1, number(1, d) if isinstance(d, int) else text(2, d)) for d in shape)
    return text(1, name) + block(2, block(1, number(1, kind) + block(2, dims)))


def model(
    nodes: Sequence[bytes],
    initialisers: Sequence[bytes],
    inputs: Sequence[bytes],
    outputs: Sequence[bytes],
    opset: int = OPSET,
) -> bytes:
    """ModelProto with one graph."""
    graph = b"".join(block(1, item) for item in nodes) + text(2, "gpuimg")
    graph += b"".join(block(5, item) for item in initialisers)
    graph += b"".join(block(11, item) for item in inputs) + b"".join(block(12, item) for item in outputs)
    return number(1, IR_VERSION) + text(2, "gpuimg") + block(7, graph) + block(8, text(1, "") + number(2, opset))
