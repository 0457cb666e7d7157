"""Pure rules about a monitored curve: was the GPU busy, was it held back, were the GPUs in step.

What healthy looks like was measured: an H200 at 691 of 700 W has the software power cap active the whole time and runs
1455 to 1500 of 1980 MHz. Neither that reason bit nor a clock 26 % under the maximum is a fault; a clock that falls
*while it works*, a thermal or hardware slowdown, or a low clock with power to spare is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .judge_card import BAD_REASONS
from .judge_host import Problem
from .nvml import throttle_names

RAMP_S = 1.0
"""Seconds left out at the start of a busy stretch: NVML averages utilisation, clocks and power ramp up."""
TAIL_S = 0.4
MIN_SAMPLES = 5
BUSY_PERCENT = 90.0
SOME_PERCENT = 2.0
"""A GPU that trains even a small net shows more than this in some sample; an idle one shows 0."""
SLOWDOWN_SHARE = 0.05
"""Share of samples with a thermal or hardware reason above which it is a fault (one odd sample is not)."""
DRIFT = 0.15
"""Fall of the SM clock from the first to the last third of a stretch that is a fault."""
FREE_POWER = 0.85
"""Below this share of the power limit a card is not held by power."""
LOW_CLOCK = 0.80
"""Share of the maximum clock below which a card with power to spare is held back."""


def middle(values: Sequence[float]) -> float:
    """Median; ValueError when empty."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("no values")
    half = len(ordered) // 2
    return float(ordered[half]) if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2.0


def cut(rows: Sequence[Mapping[str, Any]], start: float, end: float, gpu: int | None = None) -> list[Mapping[str, Any]]:
    """Samples inside a busy stretch, ramp and tail left out."""
    return [
        row for row in rows if start + RAMP_S <= row["t"] <= end - TAIL_S and (gpu is None or row.get("gpu", 0) == gpu)
    ]


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Medians and extremes of a stretch: util %, sm MHz, w W, c °C, reasons seen and their share."""
    out: dict[str, Any] = {"samples": len(rows)}
    for key, name in (
        ("util", "util_percent"),
        ("sm", "sm_mhz"),
        ("mem", "mem_mhz"),
        ("w", "power_w"),
        ("c", "temp_c"),
    ):
        values = [float(row[key]) for row in rows if row.get(key) is not None]
        if values:
            out[name] = {"median": middle(values), "min": min(values), "max": max(values)}
            out[name]["mean"] = round(sum(values) / len(values), 2)
    shares: dict[str, float] = {}
    for row in rows:
        for reason in throttle_names(int(row.get("thr") or 0)):
            shares[reason] = shares.get(reason, 0.0) + 1.0 / len(rows)
    out["reasons"] = {reason: round(share, 3) for reason, share in sorted(shares.items())}
    return out


def curve_problems(
    rows: Sequence[Mapping[str, Any]],
    *,
    power_limit_w: float | None = None,
    sm_clock_max_mhz: float | None = None,
    busy_percent: float = BUSY_PERCENT,
    full: bool = True,
) -> list[Problem]:
    """Judge the samples of one GPU inside one busy stretch (see :func:`cut`). ValueError with fewer than 5 samples.

    ``full`` False: the load waits for the host in between, so only an idle GPU and slowdowns are faults; clocks of a
    card that rests now and then say nothing.
    """
    if len(rows) < MIN_SAMPLES:
        raise ValueError(f"{len(rows)} samples are too few to judge")
    facts = summary(rows)
    problems: list[Problem] = []
    util = facts.get("util_percent")
    if not full:
        if util is not None and util["max"] < SOME_PERCENT:
            problems.append(
                Problem(
                    f"never busy: at most {util['max']:.0f} % in {len(rows)} samples of work that was to run on it",
                    "the work ran elsewhere: another GPU or the CPU",
                )
            )
    elif util is not None and util["mean"] < busy_percent:
        problems.append(
            Problem(
                f"busy {util['mean']:.0f} % of the time, {busy_percent:.0f} % is expected under this load",
                "the work does not reach the GPU: a slow CPU, a CPU limit (host.limits), or another tenant on it",
            )
        )
    # one odd sample of a short stretch is not a fault either
    least = max(SLOWDOWN_SHARE, 1.5 / len(rows))
    bad = {r: s for r, s in facts["reasons"].items() if r in BAD_REASONS and s > least}
    if bad:
        words = ", ".join(f"{reason} in {share:.0%} of the samples" for reason, share in bad.items())
        thermal = any("thermal" in reason for reason in bad)
        problems.append(
            Problem(
                f"held back: {words}",
                "too hot: its cooling does not carry the load; another server"
                if thermal
                else "the board's protection slows it: power supply or cooling; another server",
            )
        )
    clocks = [float(row["sm"]) for row in rows if row.get("sm") is not None]
    if full and len(clocks) >= MIN_SAMPLES:
        third = max(1, len(clocks) // 3)
        first, last = middle(clocks[:third]), middle(clocks[-third:])
        if first > 0 and last < (1 - DRIFT) * first:
            problems.append(
                Problem(
                    f"the SM clock fell from {first:.0f} to {last:.0f} MHz while it worked",
                    "heat or power: the speed of the first seconds does not last; test longer, or another server",
                )
            )
        powers = [float(row["w"]) for row in rows if row.get("w") is not None]
        capped = facts["reasons"].get("sw_power_cap", 0.0) > 0.5
        if sm_clock_max_mhz and power_limit_w and powers and not capped:
            clock, power = middle(clocks), middle(powers)
            if clock < LOW_CLOCK * sm_clock_max_mhz and power < FREE_POWER * power_limit_w:
                problems.append(
                    Problem(
                        f"the SM clock stays at {clock:.0f} of {sm_clock_max_mhz:.0f} MHz with power to spare "
                        f"({power:.0f} of {power_limit_w:.0f} W)",
                        "the clocks are locked low: nvidia-smi -rgc by root of the host sets them free",
                    )
                )
        if sm_clock_max_mhz and middle(clocks) < 0.5 * sm_clock_max_mhz:
            problems.append(
                Problem(
                    f"the SM clock is {middle(clocks):.0f} of {sm_clock_max_mhz:.0f} MHz",
                    "less than half: a low power limit, heat, or locked clocks (card.state says which)",
                )
            )
    return problems


def step_problems(per_gpu: Mapping[int, Sequence[Mapping[str, Any]]]) -> list[Problem]:
    """GPUs that did the same work must look alike: utilisation within 15 points, SM clock within 15 %."""
    facts = {gpu: summary(rows) for gpu, rows in per_gpu.items() if len(rows) >= MIN_SAMPLES}
    problems: list[Problem] = []
    if len(facts) < 2:
        return problems
    util = {gpu: f["util_percent"]["mean"] for gpu, f in facts.items() if "util_percent" in f}
    if util and max(util.values()) - min(util.values()) > 15:
        slow = min(util, key=lambda gpu: util[gpu])
        problems.append(
            Problem(
                f"GPU {slow} was busy {util[slow]:.0f} %, others up to {max(util.values()):.0f} %",
                "it waits for data: look at its link (card.link) and the CPU cores near it",
            )
        )
    clocks = {gpu: f["sm_mhz"]["median"] for gpu, f in facts.items() if "sm_mhz" in f}
    if clocks:
        typical = middle(list(clocks.values()))
        for gpu, clock in clocks.items():
            if clock < 0.85 * typical:
                problems.append(
                    Problem(
                        f"GPU {gpu} runs at {clock:.0f} MHz, the others at {typical:.0f}",
                        "one slow GPU holds all the others: its cooling or power limit; another server",
                    )
                )
    return problems
