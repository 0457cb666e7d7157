"""Float64 references in plain Python, and the measures of distance from them. Pure; no framework, no numpy.

A framework must not judge itself: the same broken library would compute the product and the reference. Everything
here is small enough for the interpreter (each function under half a second at the sizes the checks use).
"""

from __future__ import annotations

import math
import random
from array import array
from collections.abc import Sequence
from typing import Any

BOUNDS = {"fp32": 1e-5, "tf32": 2e-3, "fp16": 2e-3, "bf16": 1e-2, "fp8": 1e-1}
"""Largest accepted root-mean-square error of a product of random matrices, relative to the product's own size.

Rounding both operands to a type with unit roundoff u changes a product of independent random numbers by about
0.8 u (both operands, uniform rounding error u/sqrt(3) each), and rounding the result adds u/sqrt(3): about u in all.
u is 2**-11 for fp16, 2**-11 to 2**-10 for tf32 (rounded or cut), 2**-9 for bf16, 2**-4 for fp8 e4m3. The bounds are
two to five times that: nothing correct comes near, and fp32 that is secretly tf32 is found.
"""
ON_CPU = {"fp16": 5.0, "bf16": 5.0}
"""On a CPU the bounds of the half formats are this many times wider: some kernels there add up in the format itself
(TensorFlow 2.13: 2.3e-3 in fp16 over 512 terms), which GPUs do not."""
PEAK = 8.0
"""No single entry may be further off than this many times the bound."""


def bound(mode: str, device: str) -> float:
    """The bound of a format on a device, ``cuda`` or ``cpu``."""
    return BOUNDS[mode] * (ON_CPU.get(mode, 1.0) if device == "cpu" else 1.0)


def uniform(rng: random.Random, count: int) -> array[float]:
    """``count`` float32 numbers in (-1, 1), all 23 mantissa bits random."""
    scale = 2.0**-31
    words = array("I", rng.getrandbits(32 * count).to_bytes(4 * count, "little"))
    return array("f", [(word + 0.5) * scale - 1.0 for word in words])


def compare(got: Sequence[float], want: Sequence[float]) -> dict[str, float]:
    """``rms_error`` and ``peak_error``, both relative to the root mean square of ``want``; ``not_finite`` entries.

    With entries that are not finite both errors are infinite: NaN never passes. ValueError for unequal lengths.
    """
    if len(got) != len(want):
        raise ValueError(f"{len(got)} values where {len(want)} were expected")
    bad = sum(1 for value in got if not math.isfinite(value))
    if bad:
        return {"rms_error": math.inf, "peak_error": math.inf, "not_finite": bad}
    size = math.sqrt(math.fsum(value * value for value in want) / len(want)) or 1.0
    gaps = [abs(a - b) for a, b in zip(got, want)]
    rms = math.sqrt(math.fsum(gap * gap for gap in gaps) / len(gaps)) / size
    return {"rms_error": rms, "peak_error": max(gaps) / size, "not_finite": 0}


def dot(a: Sequence[float], b: Sequence[float]) -> float:
    """Sum of products in float64."""
    return math.fsum(map(_times, a, b))


def _times(x: float, y: float) -> float:
    return x * y


def product_errors(
    a: Sequence[float], b: Sequence[float], c: Sequence[float], n: int, rng: random.Random, samples: int = 256
) -> dict[str, float]:
    """How far ``c`` (n x n, row major) is from the float64 product of ``a`` and ``b``.

    ``samples`` entries are compared one by one. All entries are covered by Freivalds' check: c·x against a·(b·x) for
    a random x of ±1, whose relative error is that of the product (``row_error``). O(n²), so plain Python serves.
    """
    bad = sum(1 for value in c if not math.isfinite(value))
    if len(c) != n * n:
        raise ValueError(f"{len(c)} values where {n * n} were expected")
    if bad:
        return {"rms_error": math.inf, "peak_error": math.inf, "row_error": math.inf, "not_finite": bad}
    columns: dict[int, Sequence[float]] = {}
    got, want = [], []
    for _ in range(samples):
        i, j = rng.randrange(n), rng.randrange(n)
        if j not in columns:
            columns[j] = b[j::n]
        got.append(c[i * n + j])
        want.append(dot(a[i * n : (i + 1) * n], columns[j]))
    found = compare(got, want)
    x = [rng.choice((-1.0, 1.0)) for _ in range(n)]
    bx = [dot(b[k * n : (k + 1) * n], x) for k in range(n)]
    rows = compare(
        [dot(c[i * n : (i + 1) * n], x) for i in range(n)],
        [dot(a[i * n : (i + 1) * n], bx) for i in range(n)],
    )
    return {**found, "row_error": rows["rms_error"]}


def within(errors: dict[str, float], limit: float) -> bool:
    """True when every error is finite and inside ``limit`` (single entries: :data:`PEAK` times it)."""
    return (
        errors["not_finite"] == 0
        and errors["rms_error"] <= limit
        and errors["peak_error"] <= PEAK * limit
        and errors.get("row_error", 0.0) <= 2 * limit
    )


def convolution(
    x: Sequence[float], w: Sequence[float], dy: Sequence[float], n: int, c: int, k: int, size: int
) -> tuple[list[float], list[float], list[float]]:
    """3 x 3 convolution (cross-correlation), padding 1, stride 1: ``(y, dx, dw)`` for ``sum(y * dy)``.

    x is (n, c, size, size), w (k, c, 3, 3), dy (n, k, size, size), all row major.
    """
    y = [0.0] * (n * k * size * size)
    dx = [0.0] * (n * c * size * size)
    dw = [0.0] * (k * c * 9)
    for image in range(n):
        for out in range(k):
            for channel in range(c):
                for r in range(3):
                    for s in range(3):
                        at = ((out * c + channel) * 3 + r) * 3 + s
                        weight = w[at]
                        left, right = max(0, 1 - s), min(size, size + 1 - s)
                        total = 0.0
                        for row in range(max(0, 1 - r), min(size, size + 1 - r)):
                            oy = ((image * k + out) * size + row) * size
                            ox = ((image * c + channel) * size + row + r - 1) * size + s - 1
                            for col in range(left, right):
                                value, slope = x[ox + col], dy[oy + col]
                                y[oy + col] += weight * value
                                dx[ox + col] += weight * slope
                                total += value * slope
                        dw[at] += total
    return y, dx, dw


def attention(
    q: Sequence[float], k: Sequence[float], v: Sequence[float], heads: int, length: int, width: int
) -> list[float]:
    """Causal scaled dot-product attention; q, k, v are (heads, length, width), row major; so is the result."""
    out: list[float] = []
    scale = 1.0 / math.sqrt(width)
    for head in range(heads):
        base = head * length * width
        keys = [k[base + j * width : base + (j + 1) * width] for j in range(length)]
        values = [v[base + j * width : base + (j + 1) * width] for j in range(length)]
        for i in range(length):
            query = q[base + i * width : base + (i + 1) * width]
            scores = [scale * dot(query, keys[j]) for j in range(i + 1)]
            top = max(scores)
            weights = [math.exp(score - top) for score in scores]
            total = math.fsum(weights)
            for d in range(width):
                out.append(math.fsum(weights[j] * values[j][d] for j in range(i + 1)) / total)
    return out


def cosine(a: Sequence[float], b: Sequence[float]) -> float:
    """Cosine of the angle between two vectors; NaN when either is zero or not finite (NaN passes no comparison)."""
    if len(a) != len(b):
        raise ValueError(f"{len(a)} values where {len(b)} were expected")
    size = math.sqrt(math.fsum(x * x for x in a)) * math.sqrt(math.fsum(x * x for x in b))
    if not math.isfinite(size) or size == 0.0:
        return math.nan
    return dot(a, b) / size


def median(values: Sequence[float]) -> float:
    """Middle value; ValueError when there is none."""
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def rounded(errors: dict[str, Any]) -> dict[str, Any]:
    """The same with floats cut to three significant digits; infinite and NaN become text, as JSON has neither."""
    out: dict[str, Any] = {}
    for key, value in errors.items():
        if isinstance(value, float):
            out[key] = float(f"{value:.3g}") if math.isfinite(value) else str(value)
        else:
            out[key] = value
    return out


def quantise_rows(w: Sequence[float], rows: int, columns: int) -> tuple[array[int], array[float]]:
    """Symmetric int8 per row: ``w[r, c] ≈ q[r, c] * scale[r]``. Row r holds one output channel."""
    q, scales = array("b"), array("f")
    for r in range(rows):
        row = w[r * columns : (r + 1) * columns]
        scale = max(map(abs, row)) / 127.0 or 1.0
        scales.append(scale)
        q.extend([max(-127, min(127, round(value / scale))) for value in row])
    return q, scales
