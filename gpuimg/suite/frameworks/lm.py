"""A small language model with random weights, written once over the few operations an adapter gives.

Decoder-only transformer: token and position embeddings, RMS norm, causal attention with a key/value cache, gated
feed-forward, output head. What matters is not what it says but that four ways of asking give one answer.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from . import reference

VOCAB, DIM, HEADS, LAYERS, FFN, CONTEXT = 96, 64, 4, 2, 128, 64
WIDTH = DIM // HEADS
FAR = -1e9
"""Added to the scores of positions that must not be seen."""


@dataclass
class Model:
    """Weights on the device, and the operations."""

    ops: Any
    embed: Any
    position: Any
    head: Any
    layers: list[dict[str, Any]]
    compiled: dict[tuple[int, int, int], Any] = field(default_factory=dict)
    """(rows, length, past) → compiled pass, where the framework compiles."""


@dataclass
class Cache:
    """Keys and values of all layers (k, v, k, v …), each (rows, HEADS, length, WIDTH)."""

    tensors: list[Any]
    length: int


def build(ops: Any, rng: random.Random) -> Model:
    """Random weights, scaled so that activations keep their size."""

    def weight(rows: int, columns: int, scale: float) -> Any:
        values = array("f", [scale * v for v in reference.uniform(rng, rows * columns)])
        return ops.tensor(values, (rows, columns))

    inner = (3.0 / DIM) ** 0.5
    layers = [
        {
            "q": weight(DIM, DIM, inner),
            "k": weight(DIM, DIM, inner),
            "v": weight(DIM, DIM, inner),
            "o": weight(DIM, DIM, inner),
            "gate": weight(DIM, FFN, inner),
            "up": weight(DIM, FFN, inner),
            "down": weight(FFN, DIM, (3.0 / FFN) ** 0.5),
        }
        for _ in range(LAYERS)
    ]
    return Model(ops, weight(VOCAB, DIM, 1.7), weight(CONTEXT, DIM, 0.5), weight(DIM, VOCAB, inner), layers)


def _norm(ops: Any, x: Any) -> Any:
    return x * ops.rsqrt(ops.mean(x * x) + 1e-5)


def _pass(model: Model, flat: Any, places: Any, mask: Any, cache: list[Any], rows: int, length: int) -> list[Any]:
    """One pass over ``rows * length`` tokens: logits, then key and value of each layer with the cache in front."""
    ops = model.ops
    x = ops.take(model.embed, flat) + ops.take(model.position, places)
    grown: list[Any] = []
    for at, layer in enumerate(model.layers):
        h = _norm(ops, x)
        q, k, v = (
            ops.transpose(ops.reshape(h @ layer[name], (rows, length, HEADS, WIDTH)), (0, 2, 1, 3)) for name in "qkv"
        )
        if cache:
            k = ops.concat([cache[2 * at], k], 2)
            v = ops.concat([cache[2 * at + 1], v], 2)
        grown += [k, v]
        scores = ops.softmax((q @ ops.transpose(k, (0, 1, 3, 2))) * (WIDTH**-0.5) + mask)
        mixed = ops.reshape(ops.transpose(scores @ v, (0, 2, 1, 3)), (rows * length, DIM))
        x = x + mixed @ layer["o"]
        h = _norm(ops, x)
        gate = h @ layer["gate"]
        x = x + (gate * ops.sigmoid(gate) * (h @ layer["up"])) @ layer["down"]
    return [_norm(ops, x) @ model.head, *grown]


def step(model: Model, ids: Sequence[Sequence[int]], cache: Cache | None) -> tuple[Any, Cache]:
    """Run ``ids`` (rows of equal length) after what the cache holds.

    Returns logits of shape (rows * length, VOCAB) and the grown cache.
    """
    ops = model.ops
    rows, length = len(ids), len(ids[0])
    past = cache.length if cache else 0
    total = past + length
    flat = [token for row in ids for token in row]
    places = [past + i for _ in ids for i in range(length)]
    hidden = [0.0 if j <= past + i else FAR for i in range(length) for j in range(total)]
    mask = ops.tensor(array("f", hidden), (1, 1, length, total))
    held = list(cache.tensors) if cache else []
    if hasattr(ops, "jit"):  # frameworks that compile do so once per shape, not once per operation
        key = (rows, length, past)
        if key not in model.compiled:
            model.compiled[key] = ops.jit(lambda f, p, m, c: _pass(model, f, p, m, c, rows, length))
        parts = model.compiled[key](flat, places, mask, held)
    else:
        parts = _pass(model, flat, places, mask, held, rows, length)
    if hasattr(ops, "settle"):  # frameworks that build a graph run it here, so that the cache is a cache
        parts = ops.settle(parts)
    return parts[0], Cache(parts[1:], total)


def largest(row: Sequence[float]) -> int:
    """Index of the largest value, the first of equals."""
    return max(range(len(row)), key=lambda i: (row[i], -i))


def generate(model: Model, prompt: Sequence[int], count: int) -> tuple[list[int], list[float], Any]:
    """Greedy decoding with a cache: tokens, the logits each was chosen from (flat), and the last logits tensor."""
    logits, cache = step(model, [list(prompt)], None)
    values = model.ops.numbers(logits)
    row = list(values[-VOCAB:])
    tokens, seen = [], list(row)
    for _ in range(count - 1):
        tokens.append(largest(row))
        logits, cache = step(model, [[tokens[-1]]], cache)
        row = list(model.ops.numbers(logits))
        seen += row
    tokens.append(largest(row))
    return tokens, seen, logits
