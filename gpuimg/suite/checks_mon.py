"""mon.*: what NVML saw from beside, at 5 Hz, while the other checks kept the GPUs busy."""

from __future__ import annotations

from typing import Any

from . import judge_curve
from .registry import Context, Outcome, check, failed, not_applicable, passed, skipped
from .sampler import read_samples

SHORTEST = 2.0
"""Seconds of a busy stretch below which it is not judged."""
KEPT = 600
"""Samples that are stored in the document; longer curves are thinned."""


def _stretches(ctx: Context) -> list[dict[str, Any]]:
    windows: list[dict[str, Any]] = ctx.options.get("windows") or []
    return [w for w in windows if w["end"] - w["start"] >= SHORTEST]


def thin(rows: list[dict[str, Any]], most: int = KEPT) -> list[dict[str, Any]]:
    """At most ``most`` rows, evenly."""
    step = max(1, -(-len(rows) // most))
    return rows[::step]


@check(
    "mon.curve",
    title="Curve under load",
    proves="while computing and training the GPU was really busy, and neither heat nor hardware held it back",
    how="NVML at 5 Hz in a process beside: utilisation, clocks, power, temperature, event reasons; judged inside the "
    "stretches that checks marked as busy, without their first second",
    threshold="busy ≥ 90 % in products, at all in training of a small net; thermal or hardware slowdown in ≤ 5 % of samples; clock falls < 15 % while working; no low "
    "clock with power to spare. The software power cap alone is healthy",
    source="recorded on an H200: power cap all the time and 26 % under the maximum clock are healthy",
    needs=("gpu",),
    light=True,
)
def mon_curve(ctx: Context) -> Outcome:
    stretches = _stretches(ctx)
    rows = read_samples(ctx.samples) if ctx.samples else []
    if not rows:
        return skipped("NVML gave no samples here")
    if not stretches:
        return not_applicable("no check of this run keeps a GPU busy for two seconds")
    origin = rows[0]["t"]
    measured: dict[str, Any] = {
        "stretches": [],
        "curve": [{**row, "t": round(row["t"] - origin, 2)} for row in thin(rows)],
    }
    problems: list[tuple[str, str]] = []
    judged = 0
    for stretch in stretches:
        for i, gpu in enumerate(ctx.gpus):
            index = int(gpu.get("index", i))
            if stretch.get("gpus") is not None and i not in stretch["gpus"]:
                continue
            inside = judge_curve.cut(rows, stretch["start"], stretch["end"], index)
            facts = {
                "check": stretch["check"],
                "label": stretch["label"],
                "gpu": index,
                "from_s": round(stretch["start"] - origin, 2),
                "to_s": round(stretch["end"] - origin, 2),
                **(judge_curve.summary(inside) if inside else {"samples": 0}),
            }
            measured["stretches"].append(facts)
            if len(inside) < judge_curve.MIN_SAMPLES:
                continue
            judged += 1
            found = judge_curve.curve_problems(
                inside,
                power_limit_w=gpu.get("power_limit_w"),
                sm_clock_max_mhz=gpu.get("sm_clock_max_mhz"),
                busy_percent=float(ctx.floor("busy_percent", judge_curve.BUSY_PERCENT)),
                full=stretch.get("full", True),
            )
            problems += [(f"GPU {index} during {stretch['label']}: {p.what}", p.fix) for p in found]
    if not judged:
        return skipped("the busy stretches were too short to judge", measured)
    if problems:
        return failed("; ".join(p[0] for p in problems), "; ".join(dict.fromkeys(p[1] for p in problems)), measured)
    return passed(measured, {"busy_percent": float(ctx.floor("busy_percent", judge_curve.BUSY_PERCENT))})


@check(
    "mon.step",
    title="GPUs in step",
    proves="all GPUs work alike under the same load: no slow one holds the others",
    how="the same samples, per GPU, inside stretches in which all GPUs were busy",
    threshold="utilisation within 15 points, SM clock of each ≥ 85 % of the median",
    source="our own, from healthy H200 curves; one slow rank sets the pace of all in data-parallel training",
    needs=("multi-gpu",),
    light=True,
)
def mon_step(ctx: Context) -> Outcome:
    rows = read_samples(ctx.samples) if ctx.samples else []
    together = [w for w in _stretches(ctx) if w.get("gpus") is None or len(w["gpus"]) == len(ctx.gpus)]
    if not rows:
        return skipped("NVML gave no samples here")
    if not together:
        return not_applicable("no check of this run keeps all GPUs busy at once for two seconds")
    problems = []
    measured: dict[str, Any] = {"stretches": []}
    for stretch in together:
        per_gpu = {
            int(gpu.get("index", i)): judge_curve.cut(rows, stretch["start"], stretch["end"], int(gpu.get("index", i)))
            for i, gpu in enumerate(ctx.gpus)
        }
        measured["stretches"].append(
            {"label": stretch["label"], "gpus": {str(g): judge_curve.summary(r) for g, r in per_gpu.items() if r}}
        )
        problems += judge_curve.step_problems(per_gpu)
    if problems:
        return failed("; ".join(p.what for p in problems), "; ".join(dict.fromkeys(p.fix for p in problems)), measured)
    return passed(measured)
