"""compute.*: are products, convolutions and attention right, did they run on the GPU, and at the card's speed?

Data come from the run's seed, references from :mod:`.reference` (plain Python), never from the framework itself.
"""

from __future__ import annotations

import re
from array import array
from typing import Any

from ..registry import Context, Outcome, failed, not_applicable, passed, skipped
from . import evidence, reference

N = 512
"""Side of the matrices of compute.matmul."""
CONV = (2, 8, 16, 14)
"""Images, channels in, channels out, side of compute.conv."""
HEADS, LENGTH, WIDTH = 2, 32, 64
"""Shape of compute.attention; 64 is a head width that every fused kernel takes."""
ATTENTION_BOUNDS = {"fp32": 1e-4, "fp16": 5e-3, "bf16": 3e-2}
"""Root-mean-square error relative to the output. About five roundings of the type (inputs, scores, weights, sum)."""


def matmul(ctx: Context) -> Outcome:
    """One product per number format, against float64."""
    adapter = ctx.adapter
    rng = ctx.rng
    a, b = reference.uniform(rng, N * N), reference.uniform(rng, N * N)
    ta, tb = adapter.tensor(a, (N, N), ctx.device), adapter.tensor(b, (N, N), ctx.device)
    measured: dict[str, Any] = {"n": N, "modes": {}}
    wrong = []
    refused = {}
    for mode in adapter.modes(ctx.device):
        try:
            result = adapter.matmul(ta, tb, mode)
        except NotImplementedError as error:
            refused[mode] = str(error)[:200]
            continue
        errors = reference.product_errors(a, b, adapter.numbers(result), N, rng)
        measured["modes"][mode] = reference.rounded(errors)
        if mode == adapter.modes(ctx.device)[0]:
            measured.update(evidence.gather(ctx, adapter.place(result)))
        if not reference.within(errors, reference.bound(mode, ctx.device)):
            wrong.append(mode)
    expected = {"rms_error_below": {mode: reference.bound(mode, ctx.device) for mode in measured["modes"]}}
    fallen = evidence.judge(ctx.device, measured, str(ctx.framework))
    if fallen is not None:
        return fallen
    if wrong:
        worst = measured["modes"][wrong[0]]
        if worst["not_finite"]:
            return failed(
                f"{wrong[0]}: {worst['not_finite']} of {N * N} entries of the product are NaN or infinite",
                "finite operands below 1 cannot give that: a broken kernel, a library that does not fit the card "
                "(triangle.sm), or faulty memory; run it once more, then on another card",
                measured,
                expected,
            )
        return failed(
            f"wrong product in {', '.join(wrong)}: relative error {worst['rms_error']}",
            "fp32 off by about 1e-4 to 1e-3 is TF32 switched on behind your back (NVIDIA_TF32_OVERRIDE); larger is "
            "a broken library or a faulty card: run it once more, then on another card",
            measured,
            expected,
        )
    if refused:
        measured["refused"] = refused
        return passed(measured, expected, f"{ctx.framework} refuses {', '.join(refused)} on this card")
    return passed(measured, expected)


def challenge(ctx: Context) -> Outcome:
    """The integer product whose operands follow from the nonce; the host recomputes its digest."""
    from .. import challenge as task

    adapter = ctx.adapter
    left, right = task.operands(ctx.seed)
    flat = [array("f", [float(v) for row in m for v in row]) for m in (left, right)]
    ta, tb = (adapter.tensor(m, (task.SIZE, task.SIZE), ctx.device) for m in flat)
    result = adapter.matmul(ta, tb, "fp32")
    values = adapter.numbers(result)
    measured: dict[str, Any] = evidence.gather(ctx, adapter.place(result))
    rows = [values[i * task.SIZE : (i + 1) * task.SIZE] for i in range(task.SIZE)]
    try:
        measured["digest"] = task.digest(rows)
    except (ValueError, OverflowError) as error:
        return failed(f"an integer product is not whole: {error}", "a broken kernel or a faulty card", measured)
    fallen = evidence.judge(ctx.device, measured, str(ctx.framework))
    if fallen is not None:
        return fallen
    expected = {"digest": task.expected(ctx.nonce, ctx.check_id)}
    if measured["digest"] != expected["digest"]:
        return failed(
            "the integer product of the run's challenge is wrong",
            "an exact fp32 product cannot be off: a broken kernel or a faulty card",
            measured,
            expected,
        )
    return passed(measured, expected)


def conv(ctx: Context) -> Outcome:
    """Convolution forward and backward against plain Python."""
    adapter = ctx.adapter
    if not adapter.has("conv"):
        return not_applicable(f"{ctx.framework} has no convolution of its own")
    n, c, k, size = CONV
    rng = ctx.rng
    x, w = reference.uniform(rng, n * c * size * size), reference.uniform(rng, k * c * 9)
    dy = reference.uniform(rng, n * k * size * size)
    got = adapter.conv(
        adapter.tensor(x, (n, c, size, size), ctx.device),
        adapter.tensor(w, (k, c, 3, 3), ctx.device),
        adapter.tensor(dy, (n, k, size, size), ctx.device),
    )
    want = reference.convolution(x, w, dy, n, c, k, size)
    measured: dict[str, Any] = evidence.gather(ctx, adapter.place(got[0]))
    wrong = []
    for name, tensor, truth in zip(("forward", "grad_input", "grad_weight"), got, want):
        if tensor is None:
            continue
        errors = reference.compare(adapter.numbers(tensor), truth)
        measured[name] = reference.rounded(errors)
        if not reference.within(errors, 1e-4):
            wrong.append(name)
    expected = {"rms_error_below": 1e-4}
    fallen = evidence.judge(ctx.device, measured, str(ctx.framework))
    if fallen is not None:
        return fallen
    if wrong:
        return failed(
            f"convolution is wrong: {', '.join(wrong)} ({measured[wrong[0]]['rms_error']} off)",
            "cuDNN does not fit the framework or the card (triangle.loaded names the one that was loaded)",
            measured,
            expected,
        )
    return passed(measured, expected, None if got[1] is not None else "forward only: it has no gradients")


def attention(ctx: Context) -> Outcome:
    """Causal attention by every backend that accepts the card, against plain Python."""
    adapter = ctx.adapter
    if not adapter.has("attention"):
        return not_applicable(f"{ctx.framework} has no attention")
    rng = ctx.rng
    q, k, v = (reference.uniform(rng, HEADS * LENGTH * WIDTH) for _ in range(3))
    want = reference.attention(q, k, v, HEADS, LENGTH, WIDTH)
    shape = (1, HEADS, LENGTH, WIDTH)
    tensors = [adapter.tensor(t, shape, ctx.device) for t in (q, k, v)]
    modes = [m for m in adapter.modes(ctx.device) if m in ATTENTION_BOUNDS]
    measured: dict[str, Any] = {"backends": {}}
    wrong = []
    for mode in modes if ctx.device == "cuda" else modes[:1]:
        try:
            found = adapter.attention(*tensors, mode)
        except NotImplementedError as error:
            measured.setdefault("refused", {})[mode] = str(error)[:200]
            continue
        for backend, result in found.items():
            errors = reference.compare(adapter.numbers(result), want)
            measured["backends"][f"{backend}/{mode}"] = reference.rounded(errors)
            if not reference.within(errors, ATTENTION_BOUNDS[mode]):
                wrong.append(f"{backend}/{mode}")
            if "result_device" not in measured:
                measured.update(evidence.gather(ctx, adapter.place(result)))
    if not measured["backends"] and "refused" in measured:
        return skipped(f"{ctx.framework} refuses attention on this device", measured)
    if not measured["backends"]:
        return not_applicable(f"this version of {ctx.framework} has no attention of its own")
    expected = {"rms_error_below": ATTENTION_BOUNDS}
    fallen = evidence.judge(ctx.device, measured, str(ctx.framework))
    if fallen is not None:
        return fallen
    if wrong:
        return failed(
            f"attention is wrong in {', '.join(wrong)}",
            "a fused kernel does not fit this card: switch that backend off, or take another build",
            measured,
            expected,
        )
    return passed(measured, expected)


# --- speed ------------------------------------------------------------------------------------------------------


def speed_floor(ctx: Context, key: str, spec: float | None, fraction: float) -> float | None:
    """The floor: the profile's absolute ``key``, else its ``fraction_of_spec`` (or ``fraction``) of the spec rate."""
    absolute = ctx.floor(key)
    if absolute is not None:
        return float(absolute)
    return None if spec is None else float(ctx.floor("fraction_of_spec", fraction)) * spec


def number(row: dict[str, Any] | None, key: str) -> float | None:
    """A positive figure of a card's row, or None."""
    value = (row or {}).get(key)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0 else None


def matmul_fraction(name: str) -> float:
    """Share of the dense spec rate that a sound card reaches: by kind of board.

    0.85 GeForce (real clocks exceed the spec's), 0.60 PCIe boards and those of 75 W or less, 0.70 other data-centre
    cards. From the measured rates beside the specs in the knowledge base.
    """
    if "GeForce" in name:
        return 0.85
    words = set(re.findall(r"[a-z0-9]+", name.lower()))
    boards = {"pcie", "nvl", "rtx", "quadro", "t4", "l4", "l40", "l40s", "a2", "a10", "a10g", "a16", "a30", "a40"}
    return 0.60 if words & boards else 0.70


BURST_S = 0.04
"""Seconds of the judged burst: some 20 products of an H200, over before its power limit acts."""


def matmul_speed(ctx: Context) -> Outcome:
    """Median TFLOP/s of 8192³ products over random data."""
    adapter = ctx.adapter
    if not adapter.has("bench_matmul"):
        return not_applicable(f"{ctx.framework} has no bare matrix product to time")
    n = int(ctx.options.get("matmul_n") or 8192)
    mode = "bf16" if "bf16" in adapter.modes("cuda") else "fp16" if "fp16" in adapter.modes("cuda") else "fp32"
    adapter.bench_matmul(n, mode, 0.005)
    burst = adapter.bench_matmul(n, mode, BURST_S)
    with ctx.busy("matmul", [0]):
        sustained = adapter.bench_matmul(n, mode, 3.0)
    return judge_matmul_speed(ctx, burst, n, mode, sustained)


def judge_matmul_speed(
    ctx: Context, times: list[float], n: int, mode: str, sustained: list[float] | None = None
) -> Outcome:
    """Milliseconds of a short burst → TFLOP/s against the floor of the card; the sustained rate is kept beside it.

    Published rates are bursts. Held for seconds, a healthy card runs into its power limit: one H200 gave 788 TFLOP/s
    over 10 products and 672 over 3 s, at 691 of 700 W.
    """
    row = ctx.card()
    rate = [2.0 * n**3 / (ms * 1e9) for ms in times]
    tflops = reference.median(rate)
    ordered = sorted(times)
    measured = {
        "tflops": round(tflops, 1),
        "n": n,
        "dtype": mode,
        "products": len(times),
        "ms_median": round(reference.median(times), 4),
        "ms_p95": round(ordered[int(0.95 * (len(ordered) - 1))], 4),
        **evidence.gather(ctx, "cuda:0"),
    }
    if sustained:
        measured["sustained_tflops"] = round(2.0 * n**3 / (reference.median(sustained) * 1e9), 1)
        measured["sustained_products"] = len(sustained)
    fallen = evidence.judge(ctx.device, measured, str(ctx.framework))
    if fallen is not None:
        return fallen
    spec = number(row, "tensor16_dense_tflops") if mode in ("bf16", "fp16") else None
    floor = speed_floor(ctx, "tflops", spec, matmul_fraction(str((row or {}).get("name", ""))))
    if floor is None:
        return skipped("no published rate for this card: measured, not judged", measured)
    expected: dict[str, Any] = {"tflops_at_least": round(floor, 1), "spec_tflops": spec}
    if tflops < floor:
        return failed(
            f"{tflops:.0f} TFLOP/s ({mode}), below the floor of {floor:.0f} for this card",
            "look at mon.*: throttled clocks, a low power limit, or another tenant on the card; else it is not the "
            "card it says (card.identity)",
            measured,
            expected,
        )
    if spec is not None and "GeForce" not in str((row or {}).get("name")) and tflops > 1.35 * spec:
        return failed(
            f"{tflops:.0f} TFLOP/s is more than this card can do ({spec:.0f}): the timing or the card's name is wrong",
            "compare card.identity",
            measured,
            expected,
        )
    return passed(measured, expected)


def membw(ctx: Context) -> Outcome:
    """Copy inside GPU memory; bytes read plus bytes written, per second."""
    adapter = ctx.adapter
    if not adapter.has("bench_copy"):
        return not_applicable(f"{ctx.framework} has no device copy to time")
    memory = int((ctx.gpus[0] if ctx.gpus else {}).get("memory_mib") or 8192)
    mib = max(64, min(1024, memory // 8))
    times = adapter.bench_copy(mib, 60)
    rate = 2.0 * (mib << 20) / (reference.median(times) * 1e6)
    row = ctx.card()
    measured = {"gbs": round(rate, 1), "mib": mib, "copies": len(times), **evidence.gather(ctx, "cuda:0")}
    fallen = evidence.judge(ctx.device, measured, str(ctx.framework))
    if fallen is not None:
        return fallen
    spec = number(row, "mem_bw_gbs")
    floor = ctx.floor("gbs") or number(row, "dcgm_min_mem_bw_gbs") or speed_floor(ctx, "gbs", spec, 0.70)
    if floor is None:
        return skipped("no published bandwidth for this card: measured, not judged", measured)
    expected = {"gbs_at_least": round(float(floor), 1), "spec_gbs": spec}
    if rate < float(floor):
        return failed(
            f"{rate:.0f} GB/s, below the floor of {float(floor):.0f} for this card",
            "a low memory clock (see mon.*), ECC on a consumer board, a slice of a card, or another tenant",
            measured,
            expected,
        )
    return passed(measured, expected)


PCIE_FLOOR = {3: 9.0, 4: 21.0, 5: 48.0}
"""GB/s pinned, x16, each way: fail below (AzNHC's published thresholds). Generation 6 is held to 5's."""


def link_floor(gpu: dict[str, Any]) -> float | None:
    """Floor of a GPU's own link from its generation and width; None when NVML does not tell them."""
    # the link idles at generation 1; the largest the pair can do is what a transfer gets
    generation = gpu.get("pcie_gen_max") or gpu.get("pcie_gen")
    width = gpu.get("pcie_width_max") or gpu.get("pcie_width")
    if not isinstance(generation, int) or not isinstance(width, int) or generation < 1 or width < 1:
        return None
    base = PCIE_FLOOR.get(min(generation, 5), 4.0)
    return base * min(width, 16) / 16.0


def h2d(ctx: Context) -> Outcome:
    """Pinned copies to the GPU and back."""
    adapter = ctx.adapter
    if not adapter.has("bench_transfer"):
        return not_applicable(f"{ctx.framework} has no pinned memory of its own")
    mib = 256
    times = adapter.bench_transfer(mib, 15)
    rates = {way: (mib << 20) / (reference.median(values) * 1e6) for way, values in times.items()}
    measured: dict[str, Any] = {f"{way}_gbs": round(rate, 2) for way, rate in rates.items()}
    measured.update(evidence.gather(ctx, "cuda:0"))
    fallen = evidence.judge(ctx.device, measured, str(ctx.framework))
    if fallen is not None:
        return fallen
    floor = ctx.floor("gbs") or link_floor(ctx.gpus[0] if ctx.gpus else {})
    if floor is None:
        return skipped("the link's generation and width are not readable: measured, not judged", measured)
    expected = {"gbs_at_least": round(float(floor), 2)}
    slow = [way for way, rate in rates.items() if rate < float(floor)]
    if slow:
        return failed(
            f"{slow[0]} {rates[slow[0]]:.1f} GB/s, below {float(floor):.1f} for this link",
            "a narrowed or downgraded link (card.link), a riser, a VM without huge pages, or memory of the far socket",
            measured,
            expected,
        )
    return passed(measured, expected)
