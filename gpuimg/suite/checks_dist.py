"""dist.*: process groups, from gloo on the CPU to NCCL's bus bandwidth.

Every rank is a process of its own that calls ``dist_workers:<framework>`` with a **job**::

    {"framework": "torch", "rank": 0, "world": 2, "backend": "gloo" | "nccl", "rendezvous": "127.0.0.1:29511",
     "gpu": 0 | None, "task": "exact" | "sweep" | "pairs" | "load",
     "ports": [one free port per rank], "sizes": [bytes, …], "iterations": 20, "timeout_s": 60}

and returns what it saw. Results are judged here and in :mod:`.judge_sweep`, not by the framework.
"""

from __future__ import annotations

import socket
import statistics
import time
from typing import Any

from . import judge_sweep
from .dist_workers import WORKERS
from .registry import Context, Fresh, Outcome, check, failed, not_applicable, passed


def free_port() -> int:
    """A TCP port of the loopback interface that is free now."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def run_group(ctx: Context, world: int, job: dict[str, Any], limit: float) -> tuple[list[Any], str | None]:
    """Start ``world`` ranks and wait. ``(answers by rank, what went wrong)``; on failure all ranks are ended."""
    port = free_port()
    ports = [free_port() for _ in range(world)]
    env = {"NCCL_DEBUG": "WARN", "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    ranks: list[Fresh] = []
    for rank in range(world):
        gpu = rank if job["backend"] == "nccl" else None
        order = {**job, "rank": rank, "world": world, "rendezvous": f"127.0.0.1:{port}", "gpu": gpu}
        order.update(framework=ctx.framework, timeout_s=limit, ports=ports)
        ranks.append(ctx.start_fresh(f"dist_workers:{WORKERS[str(ctx.framework)].__name__}", order, env))
    answers: list[Any] = []
    trouble = None
    stop = time.monotonic() + limit
    for rank, process in enumerate(ranks):
        try:
            answers.append(process.wait(max(1.0, stop - time.monotonic())))
        except (RuntimeError, TimeoutError) as error:
            trouble = trouble or f"rank {rank}: {error}"
            answers.append(None)
            stop = min(stop, time.monotonic() + 5.0)
    return answers, trouble


def exact_outcome(answers: list[Any], world: int, backend: str) -> Outcome:
    """Judge the ``exact`` task: each rank gave integers, the sum and the echoes must be right on every rank."""
    measured = {"world": world, "backend": backend, "ranks": answers}
    for rank, answer in enumerate(answers):
        wrong = [name for name, value in answer["results"].items() if value["got"] != value["want"]]
        if wrong:
            return failed(
                f"rank {rank} of {world}: {', '.join(wrong)} gave a wrong result",
                "do not train here: gradients would be wrong; try NCCL_P2P_DISABLE=1, and if that cures it the link or "
                "the host's IOMMU is at fault",
                measured,
            )
    return passed(measured)


def _cpu_group(ctx: Context, world: int) -> Outcome:
    if ctx.framework not in WORKERS:
        return not_applicable(f"the suite starts no process group with {ctx.framework}")
    if ctx.framework == "cupy":
        return not_applicable("cupyx.distributed works on GPUs only")
    backend = "grpc" if ctx.framework == "tensorflow" else "gloo"
    answers, trouble = run_group(ctx, world, {"backend": backend, "task": "exact"}, max(10.0, ctx.remaining() - 10))
    if trouble is not None:
        return failed(
            f"{world} ranks over {backend} did not come together: {trouble}",
            "the loopback interface or /dev/shm is missing in the container, or the framework was built without it",
            {"world": world, "backend": backend},
        )
    return exact_outcome(answers, world, backend)


@check(
    "dist.cpu2",
    title="Two ranks on the CPU",
    proves="the framework's process group forms and adds up right, without any GPU in it",
    how="two fresh processes over gloo on the loopback interface: all_reduce of integers, broadcast, all_gather",
    threshold="every element exact on every rank",
    source="our own; sums of small integers are exact in fp32",
    needs=("framework",),
    timeout=120,
)
def dist_cpu2(ctx: Context) -> Outcome:
    return _cpu_group(ctx, 2)


@check(
    "dist.cpu4",
    title="Four ranks on the CPU",
    proves="the same with four ranks: rings and trees of more than one hop",
    how="four fresh processes over gloo on the loopback interface",
    threshold="every element exact on every rank",
    source="our own; sums of small integers are exact in fp32",
    needs=("framework",),
    timeout=180,
)
def dist_cpu4(ctx: Context) -> Outcome:
    return _cpu_group(ctx, 4)


@check(
    "dist.init",
    title="NCCL process group",
    proves="NCCL starts with one rank per visible GPU and adds up right",
    how="a fresh process per GPU: all_reduce, broadcast and all_gather of integers on it; one GPU: a world of one",
    threshold="every element exact on every rank, within the time limit",
    source="nccl-tests -c; hangs: nccl-tests#117, nccl#2079",
    needs=("gpu-framework",),
    timeout=180,
)
def dist_init(ctx: Context) -> Outcome:
    if ctx.framework not in WORKERS:
        return not_applicable(f"the suite starts no process group with {ctx.framework}")
    world = len(ctx.gpus)
    answers, trouble = run_group(ctx, world, {"backend": "nccl", "task": "exact"}, max(20.0, ctx.remaining() - 15))
    if trouble is not None:
        from .hints import hint_for

        return failed(
            f"NCCL with {world} rank{'s' if world > 1 else ''} did not come up: {trouble}",
            hint_for(trouble) or "NCCL_DEBUG=INFO names the step; P2P blocked by IOMMU/ACS hangs: NCCL_P2P_DISABLE=1",
            {"world": world},
        )
    if answers[0].get("unavailable"):
        return not_applicable(answers[0]["unavailable"])
    outcome = exact_outcome(answers, world, "nccl")
    if outcome.status == "pass" and world == 1:
        return passed(
            outcome.measured, reason="one GPU: a world of one; links between GPUs and bandwidth were not measured"
        )
    return outcome


MIB = 1 << 20
SIZES = [MIB << power for power in range(11)]
"""1 MiB to 1 GiB."""


@check(
    "dist.together",
    title="All GPUs compute at once",
    proves="every GPU keeps its speed while all the others work too: power, cooling and CPU cores suffice for all",
    how="a fresh process per GPU multiplies 8192³ bf16 (fp16 before Ampere) matrices for 5 s, all at once",
    threshold="each GPU ≥ 90 % of the median GPU",
    source="our own; one slow rank sets the pace of all in data-parallel training",
    needs=("multi-gpu", "gpu-framework"),
    frameworks=("torch",),
    timeout=180,
    retry=True,
)
def dist_together(ctx: Context) -> Outcome:
    world = len(ctx.gpus)
    answers, trouble = run_group(ctx, world, {"backend": "nccl", "task": "load", "seconds": 5.0}, ctx.remaining() - 15)
    if trouble is not None:
        return failed(
            f"not every GPU finished: {trouble}", "run again with fewer GPUs to find the one", {"world": world}
        )
    start = max(answer["window"][0] for answer in answers)
    end = min(answer["window"][1] for answer in answers)
    ctx.busy_windows.append({"check": ctx.check_id, "label": "all GPUs", "start": start, "end": end, "gpus": None})
    rates = [float(answer["tflops"]) for answer in answers]
    measured = {"world": world, "tflops": [round(rate, 1) for rate in rates], "overlap_s": round(end - start, 2)}
    typical = statistics.median(rates)
    slow = [i for i, rate in enumerate(rates) if rate < 0.9 * typical]
    if slow:
        return failed(
            f"GPU {slow[0]} reaches {rates[slow[0]]:.0f} TFLOP/s, the median GPU {typical:.0f}",
            "its cooling or power limit (card.state, mon.step); another server",
            measured,
        )
    return passed(measured)


@check(
    "dist.busbw",
    title="Bus bandwidth between GPUs",
    proves="all GPUs exchange gradients at the speed their links should have, steadily, every pair of them",
    how="all_reduce from 1 MiB to 1 GiB, 20 iterations each timed by GPU events on every rank (the slowest counts), "
    "bus bandwidth = size/time × 2(n-1)/n; then each pair alone at 256 MiB",
    threshold="≥ the published floor for this card and count, where there is one; spread < 10 %, p99 < 1.5 x median, "
    "largest size ≥ 80 % of the best, slowest pair ≥ 80 % of the median pair",
    source="nccl-tests PERFORMANCE.md; floors of Azure's node health checks (8 x H200: 431 GB/s)",
    needs=("multi-gpu", "gpu-framework"),
    timeout=300,
    retry=True,
)
def dist_busbw(ctx: Context) -> Outcome:
    if ctx.framework not in WORKERS:
        return not_applicable(f"the suite starts no process group with {ctx.framework}")
    world = len(ctx.gpus)
    smallest = min(int(gpu.get("memory_mib") or 8192) for gpu in ctx.gpus)
    sizes = [size for size in SIZES if size // MIB * 3 < smallest]
    job = {"backend": "nccl", "task": "sweep", "sizes": sizes, "iterations": 20}
    answers, trouble = run_group(ctx, world, job, max(30.0, ctx.remaining() * 0.7))
    if trouble is not None:
        from .hints import hint_for

        return failed(f"the sweep did not end: {trouble}", hint_for(trouble) or "NCCL_DEBUG=INFO names the link")
    if answers[0].get("unavailable"):
        return not_applicable(answers[0]["unavailable"])
    times = slowest_rank([answer["times"] for answer in answers])
    rows = judge_sweep.table(times, world)
    measured: dict[str, Any] = {"world": world, "sweep": rows, "best_gbs": max(row["busbw_gbs"] for row in rows)}
    pairs = {}
    if world > 2 and ctx.framework == "torch":
        answers, trouble = run_group(
            ctx,
            world,
            {"backend": "nccl", "task": "pairs", "sizes": [256 * MIB], "iterations": 10},
            ctx.remaining() - 10,
        )
        if trouble is None:
            for name, seconds in answers[0]["pairs"].items():
                pairs[name] = judge_sweep.bus_bandwidth(256 * MIB, statistics.median(seconds), 2)
        measured["pairs_gbs"] = {name: round(value, 2) for name, value in pairs.items()}
    row = ctx.card() or {}
    floor = ctx.floor("gbs") or (row.get("busbw_floor_gbs") or {}).get(str(world))
    expected = {"gbs_at_least": floor, "nvlink_one_way_gbs": row.get("nvlink_gbs")}
    problems = judge_sweep.sweep_problems(rows, floor) + judge_sweep.pair_problems(pairs)
    if problems:
        return failed(
            "; ".join(p.what for p in problems), "; ".join(dict.fromkeys(p.fix for p in problems)), measured, expected
        )
    if trouble is not None:
        return failed(f"the pairs did not end: {trouble}", "NCCL_DEBUG=INFO names the link", measured, expected)
    if floor is None:
        return passed(
            measured, expected, "no published floor for this card and count: the shape was judged, not the height"
        )
    return passed(measured, expected)


def slowest_rank(per_rank: list[dict[str, list[float]]]) -> dict[int, list[float]]:
    """Per size the slowest rank's time of each iteration: a collective is over when its last rank is."""
    sizes = [int(size) for size in per_rank[0]]
    return {size: [max(values) for values in zip(*(rank[str(size)] for rank in per_rank))] for size in sizes}
