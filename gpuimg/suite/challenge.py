"""Random challenges that only the nonce decides: computed on the GPU inside, recomputed outside.

An image under test is not trusted to say "pass". A challenge is an integer matrix product whose operands follow from
the run's nonce; the product is exact in fp32, so its digest is known to anyone who has the nonce, and to nobody who
has not done the work.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

SIZE = 48
"""Rows and columns of the challenge matrices: small enough for pure Python (0.05 s)."""
LIMIT = 128
"""Entries lie in [-LIMIT, LIMIT): every sum stays below 2**24 and is exact in fp32 (48 * 128 * 128 = 786432)."""


def seed_of(nonce: str, check_id: str) -> int:
    """64-bit seed of a check under a nonce (HMAC-SHA256, first eight bytes, big endian)."""
    return int.from_bytes(hmac.new(nonce.encode(), check_id.encode(), hashlib.sha256).digest()[:8], "big")


def stream(seed: int, label: str, count: int) -> list[int]:
    """``count`` integers in [-LIMIT, LIMIT) from SHA-256 in counter mode."""
    out = bytearray()
    block = 0
    while len(out) < count:
        out += hashlib.sha256(b"%d:%s:%d" % (seed, label.encode(), block)).digest()
        block += 1
    return [value - LIMIT for value in out[:count]]


def operands(seed: int) -> list[list[list[int]]]:
    """``[A, B]``: two SIZE x SIZE integer matrices."""
    return [[stream(seed, f"{name}{i}", SIZE) for i in range(SIZE)] for name in ("a", "b")]


def product(a: Sequence[Sequence[int]], b: Sequence[Sequence[int]]) -> list[list[int]]:
    """Plain integer matrix product."""
    columns = list(zip(*b))
    return [[sum(x * y for x, y in zip(row, column)) for column in columns] for row in a]


def digest(rows: Sequence[Sequence[float]]) -> str:
    """SHA-256 over the entries as decimal integers; raises ValueError when one is not an integer (NaN, rounding)."""
    text = []
    for row in rows:
        for value in row:
            if value != value or value in (float("inf"), float("-inf")) or int(value) != value:
                raise ValueError(f"not an exact product: {value!r}")
            text.append(str(int(value)))
    return hashlib.sha256(",".join(text).encode()).hexdigest()


def expected(nonce: str, check_id: str) -> str:
    """The digest that an honest run under this nonce must report for this check."""
    a, b = operands(seed_of(nonce, check_id))
    return digest(product(a, b))
