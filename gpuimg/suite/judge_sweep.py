"""Pure rules about an all_reduce sweep: bandwidth by the nccl-tests definition, spread, plateau, slowest pair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .judge_curve import middle
from .judge_host import Problem

LARGE = 64 << 20
"""Bytes from which a size counts as bandwidth-bound."""
SPREAD = 0.10
"""Robust coefficient of variation over iterations of a large size."""
TAIL_RATIO = 1.5
"""p99 over median of a large size."""
COLLAPSE = 0.80
"""Largest size over the best size: below it the plateau has collapsed."""
SLOW_PAIR = 0.80
"""Slowest pair over the median pair."""


def bus_bandwidth(size: int, seconds: float, ranks: int) -> float:
    """all_reduce: algbw × 2(n-1)/n in GB/s (1e9), as nccl-tests' PERFORMANCE.md defines it."""
    return size / seconds * 2.0 * (ranks - 1) / ranks / 1e9


def percentile(values: Sequence[float], share: float) -> float:
    """Nearest-rank percentile."""
    ordered = sorted(values)
    return float(ordered[min(len(ordered) - 1, max(0, int(share * len(ordered) + 0.999999) - 1))])


def spread(values: Sequence[float]) -> float:
    """1.4826 × median absolute deviation over the median: one odd iteration does not count, a wobble does."""
    m = middle(values)
    return 1.4826 * middle([abs(v - m) for v in values]) / m if m else 0.0


def table(times: Mapping[int, Sequence[float]], ranks: int) -> list[dict[str, Any]]:
    """One row per size: bytes, busbw_gbs (of the median), median_s, spread, p99_over_median, iterations."""
    rows = []
    for size in sorted(times):
        values = list(times[size])
        m = middle(values)
        rows.append(
            {
                "bytes": size,
                "busbw_gbs": round(bus_bandwidth(size, m, ranks), 3),
                "median_s": m,
                "spread": round(spread(values), 4),
                "p99_over_median": round(percentile(values, 0.99) / m, 3),
                "iterations": len(values),
            }
        )
    return rows


def sweep_problems(rows: Sequence[Mapping[str, Any]], floor_gbs: float | None) -> list[Problem]:
    """Judge a :func:`table`. ``floor_gbs`` None: no published floor for this card and count, shape only."""
    problems: list[Problem] = []
    large = [row for row in rows if row["bytes"] >= LARGE] or list(rows[-3:])
    if not large:
        raise ValueError("empty sweep")
    best = max(row["busbw_gbs"] for row in rows)
    reached = max(row["busbw_gbs"] for row in large)
    if floor_gbs is not None and reached < floor_gbs:
        problems.append(
            Problem(
                f"{reached:.1f} GB/s bus bandwidth, {floor_gbs:.0f} is the floor for this card and count",
                "NCCL_DEBUG=INFO says which transport it chose: P2P/NVLink is wanted, SHM or NET is slow; see "
                "card.link and nvidia-smi topo -m",
            )
        )
    last = rows[-1]["busbw_gbs"]
    if last < COLLAPSE * best:
        where = max(rows, key=lambda row: row["busbw_gbs"])["bytes"]
        problems.append(
            Problem(
                f"bandwidth collapses: {best:.1f} GB/s at {where >> 20} MiB, {last:.1f} at the largest size",
                "a link retrains or a buffer spills under load: check Xid and NVLink errors, or another server",
            )
        )
    wobbly = [row for row in large if row["spread"] > SPREAD]
    if len(wobbly) * 2 >= len(large) and wobbly:
        worst = max(wobbly, key=lambda row: row["spread"])
        problems.append(
            Problem(
                f"iterations scatter by {worst['spread']:.0%} at {worst['bytes'] >> 20} MiB ({SPREAD:.0%} is allowed)",
                "another tenant shares the link or the CPU: run again alone, or another server",
            )
        )
    tails = [row for row in large if row["p99_over_median"] > TAIL_RATIO]
    if len(tails) * 2 >= len(large) and tails:
        worst = max(tails, key=lambda row: row["p99_over_median"])
        problems.append(
            Problem(
                f"slow outliers: p99 is {worst['p99_over_median']:.1f} x the median at {worst['bytes'] >> 20} MiB",
                "something interrupts the transfers: another tenant, or a link that retrains",
            )
        )
    return problems


def pair_problems(pairs: Mapping[str, float]) -> list[Problem]:
    """``{'0-1': GB/s, …}``: the slowest pair against the median pair (needs three pairs or more)."""
    if len(pairs) < 3:
        return []
    typical = middle(list(pairs.values()))
    slow = min(pairs, key=lambda pair: pairs[pair])
    if pairs[slow] < SLOW_PAIR * typical:
        return [
            Problem(
                f"GPUs {slow} reach {pairs[slow]:.1f} GB/s, the median pair {typical:.1f}",
                "a broken or missing NVLink between them, or different sockets: nvidia-smi topo -m",
            )
        ]
    return []
