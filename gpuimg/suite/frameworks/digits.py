"""The bundled real data set: 1797 handwritten digits of 8 x 8 pixels (UCI optdigits test set, CC BY 4.0).

Licence and origin: ``suite/data/digits.LICENSE.txt``.
"""

from __future__ import annotations

import random
import zlib
from array import array
from collections.abc import Sequence

from ..registry import read_data
from .adapter import TrainJob, cnn_shapes, mlp_shapes, size_of

TRAIN = 1500
"""Rows for training; the other 297 are for testing."""
BATCH, RATE, MOMENTUM = 20, 0.03, 0.9
"""75 steps. Over 50 seeds in float32 and bf16 the convolutional net reached 0.899 at the least
(PyTorch, CPU), over 40 seeds the perceptron 0.872 (NumPy)."""


def load() -> tuple[array[float], list[int]]:
    """Pixels scaled to [0, 1] (1797 x 64, flat) and labels. ValueError when the file is damaged."""
    raw = zlib.decompress(read_data("digits.zlib"))
    if len(raw) != 1797 * 65:
        raise ValueError(f"digits.zlib holds {len(raw)} bytes, not {1797 * 65}")
    pixels, labels = array("f"), []
    for at in range(0, len(raw), 65):
        pixels.extend([value / 16.0 for value in raw[at : at + 64]])
        labels.append(raw[at + 64])
    return pixels, labels


def initial(shapes: Sequence[tuple[int, ...]], rng: random.Random) -> list[array[float]]:
    """He initialisation, uniform; biases zero."""
    weights = []
    for shape in shapes:
        count = size_of(shape)
        if len(shape) == 1:
            weights.append(array("f", bytes(4 * count)))
            continue
        inputs = shape[0] if len(shape) == 2 else size_of(shape[1:])
        limit = (6.0 / inputs) ** 0.5
        weights.append(array("f", [rng.uniform(-limit, limit) for _ in range(count)]))
    return weights


def job(net: str, device: str, rng: random.Random, amp: str | None = None, epochs: int = 1) -> TrainJob:
    """A training job with everything random drawn from ``rng``."""
    pixels, labels = load()
    rows = list(range(len(labels)))
    rng.shuffle(rows)
    # whole batches only: no framework then has to compile a second shape
    order: list[int] = []
    for _ in range(epochs):
        shown = list(range(TRAIN))
        rng.shuffle(shown)
        order += shown[: TRAIN // BATCH * BATCH]
    shapes = cnn_shapes() if net == "cnn" else mlp_shapes()

    def take(numbers: Sequence[int]) -> array[float]:
        out = array("f")
        for row in numbers:
            out.extend(pixels[row * 64 : row * 64 + 64])
        return out

    return TrainJob(
        train_x=take(rows[:TRAIN]),
        train_y=[labels[row] for row in rows[:TRAIN]],
        test_x=take(rows[TRAIN:]),
        test_y=[labels[row] for row in rows[TRAIN:]],
        order=order,
        batch=BATCH,
        rate=RATE,
        momentum=MOMENTUM,
        weights=initial(shapes, rng),
        shapes=list(shapes),
        net=net,
        device=device,
        amp=amp,
    )


def accuracy(logits: Sequence[float], labels: Sequence[int]) -> float:
    """Share of rows whose largest of ten logits is the label's. A row with NaN counts as wrong."""
    right = 0
    for at, label in enumerate(labels):
        row = list(logits[at * 10 : at * 10 + 10])
        top = row[label]
        right += top == top and all(top > value for i, value in enumerate(row) if i != label)
    return right / len(labels)
