"""train.*: does learning work, on the real digits, in each of the framework's ways?"""

from __future__ import annotations

import hashlib
import math
import time
from array import array
from collections.abc import Sequence
from typing import Any

from ..registry import Context, Outcome, failed, not_applicable, passed, skipped
from . import digits, evidence, reference
from .adapter import TrainJob, TrainResult, size_of

ACCURACY = 0.80
"""Least share of the 297 test digits after one epoch: guessing gives 0.10.

Over 40 seeds and more on the CPU neither net gave less than 0.872.
"""
AGREE = 0.02
"""Largest difference of the mean loss between CPU and GPU after the same steps from the same start."""


def _loss(losses: Sequence[float]) -> dict[str, float]:
    """Mean of the first and the last five batches."""
    return {"first": sum(losses[:5]) / len(losses[:5]), "last": sum(losses[-5:]) / len(losses[-5:])}


def judge_training(
    ctx: Context, job: TrainJob, result: TrainResult, measured: dict[str, Any], floor: float
) -> Outcome | None:
    """None when it learned, on the right device; else the failure. Fills ``measured``."""
    loss = _loss(result.losses)
    share = digits.accuracy(result.logits, job.test_y)
    measured.update(
        loss_first=round(loss["first"], 4) if math.isfinite(loss["first"]) else str(loss["first"]),
        loss_last=round(loss["last"], 4) if math.isfinite(loss["last"]) else str(loss["last"]),
        accuracy=round(share, 4),
        steps=len(result.losses),
        net=job.net,
        compute_dtype=result.compute_dtype,
        **evidence.gather(ctx, result.place),
        **result.details,
    )
    expected = {"accuracy_at_least": floor, "loss": "falls below half"}
    fallen = evidence.judge(ctx.device, measured, str(ctx.framework))
    if fallen is not None:
        return fallen
    if not all(math.isfinite(value) for value in result.losses):
        at = next(i for i, value in enumerate(result.losses) if not math.isfinite(value))
        return failed(
            f"the loss is {result.losses[at]} at step {at}",
            "NaN in training from sound data: a broken kernel or faulty memory; see compute.matmul and compute.conv",
            measured,
            expected,
        )
    if loss["last"] > 0.5 * loss["first"]:
        return failed(
            f"it does not learn: loss {loss['first']:.3f} → {loss['last']:.3f} over {len(result.losses)} steps",
            "gradients or the optimiser are wrong: see compute.conv (gradients) and the framework's version",
            measured,
            expected,
        )
    if share < floor:
        return failed(
            f"accuracy {share:.3f} after one epoch, below {floor:.2f}",
            "it learns, but badly: wrong gradients or a broken optimiser; see compute.conv",
            measured,
            expected,
        )
    return None


def epoch(ctx: Context) -> Outcome:
    """One epoch on the digits; on a GPU the same on the CPU too, and both must agree."""
    adapter = ctx.adapter
    if not adapter.has("train"):
        return not_applicable(f"{ctx.framework} does not train")
    floor = float(ctx.floor("accuracy", ACCURACY))
    job = digits.job(getattr(adapter.module, "NET", "cnn"), ctx.device, ctx.rng)
    result = adapter.train(job)
    measured: dict[str, Any] = {}
    wrong = judge_training(ctx, job, result, measured, floor)
    expected: dict[str, Any] = {"accuracy_at_least": floor, "loss": "falls below half"}
    if wrong is not None:
        return wrong
    if ctx.device == "cuda":
        job.device = "cpu"
        other = adapter.train(job)
        gap = abs(sum(result.losses) - sum(other.losses)) / len(result.losses)
        measured["cpu_gpu_mean_loss_gap"] = round(gap, 6)
        measured["cpu_gpu_first_loss_gap"] = round(abs(result.losses[0] - other.losses[0]), 7)
        measured["cpu_accuracy"] = round(digits.accuracy(other.logits, job.test_y), 4)
        expected["cpu_gpu_mean_loss_gap_below"] = AGREE
        if not gap <= AGREE:
            return failed(
                f"CPU and GPU disagree: mean losses differ by {gap:.3f} after the same steps from the same start",
                "one of them computes wrongly: compute.conv and compute.matmul tell which",
                measured,
                expected,
            )
        measured["epochs_under_watch"] = _under_watch(ctx, adapter, job)
    return passed(measured, expected)


WATCHED_S = 4.0
"""Long enough for a dozen NVML samples after the first second, which is not judged."""


def _under_watch(ctx: Context, adapter: Any, job: TrainJob) -> int:
    """Go on training for a few seconds, so that the monitored curve has training in it; how many epochs that were."""
    job.device = "cuda"
    epochs = 0
    until = time.monotonic() + min(WATCHED_S, ctx.remaining() / 4)
    with ctx.busy("training", [0], full=False):
        while time.monotonic() < until:
            adapter.train(job)
            epochs += 1
    return epochs


def amp(ctx: Context) -> Outcome:
    """The same epoch in mixed precision, close to the float32 one."""
    adapter = ctx.adapter
    if not adapter.has("train") or not getattr(adapter.module, "AMP", True):
        return not_applicable(f"{ctx.framework} has no mixed precision here")
    measured: dict[str, Any] = {}
    modes = ["bf16", "fp16"] if ctx.device == "cuda" else ["bf16"]
    modes = [m for m in modes if m in adapter.modes(ctx.device)]
    if not modes:
        return not_applicable(f"{ctx.framework} has no half precision on this {ctx.device} device")
    floor = float(ctx.floor("accuracy", ACCURACY))
    for mode in modes:
        job = digits.job("cnn", ctx.device, ctx.rng, amp=mode)
        result = adapter.train(job)
        found: dict[str, Any] = {}
        wrong = judge_training(ctx, job, result, found, floor)
        measured[mode] = found
        if wrong is not None:
            return failed(f"{mode}: {wrong.reason}", wrong.hint, measured, wrong.expected)
        if result.compute_dtype not in ("bfloat16", "float16"):
            return failed(
                f"{mode} was asked for, and it computed in {result.compute_dtype}",
                "mixed precision is silently off in this build",
                measured,
            )
    return passed(measured, {"accuracy_at_least": floor})


def _hashes(blobs: Sequence[bytes]) -> list[str]:
    return [hashlib.sha256(blob).hexdigest() for blob in blobs]


def checkpoint(ctx: Context) -> Outcome:
    """Write a checkpoint, read it in a fresh process, compare bit for bit."""
    adapter = ctx.adapter
    if not adapter.has("checkpoint_save"):
        return not_applicable(f"{ctx.framework} has no checkpoints")
    job = digits.job(getattr(adapter.module, "NET", "cnn"), ctx.device, ctx.rng)
    weights = [reference.uniform(ctx.rng, size_of(shape)) for shape in job.shapes]
    path = str(ctx.workdir / "checkpoint")
    adapter.checkpoint_save(weights, job.shapes, path, ctx.device)
    answer = ctx.call_fresh(
        "frameworks.training:reload",
        {"framework": ctx.framework, "path": path, "shapes": [list(s) for s in job.shapes], "device": ctx.device},
    )
    want = _hashes([w.tobytes() for w in weights])
    equal = [a == b for a, b in zip(want, answer["hashes"])]
    measured = {"tensors": len(answer["hashes"]), "equal": sum(equal), "bytes": sum(4 * len(w) for w in weights)}
    expected = {"tensors": len(want), "equal": len(want)}
    if len(answer["hashes"]) != len(want) or not all(equal):
        return failed(
            f"{len(want) - sum(equal)} of {len(want)} tensors came back changed",
            "the checkpoint is not what was saved: a faulty disk, or a serialiser that does not fit the framework",
            measured,
            expected,
        )
    return passed(measured, expected)


def reload(argument: dict[str, Any]) -> dict[str, Any]:
    """In the fresh process: load the checkpoint and hash its tensors."""
    from ..registry import Adapter

    adapter = Adapter(argument["framework"])
    blobs = adapter.checkpoint_load(argument["path"], argument["shapes"], argument["device"])
    return {"hashes": _hashes(blobs)}


def compiler(ctx: Context) -> Outcome:
    """A compiled function equals the eager one."""
    adapter = ctx.adapter
    if not adapter.has("compiled"):
        return not_applicable(f"{ctx.framework} has no compiler of its own here")
    missing = adapter.compiler_missing(ctx.device) if adapter.has("compiler_missing") else None
    if missing:
        return skipped(missing, hint="add a C compiler to the image if its programs use the framework's compiler")
    n = 64
    rng = ctx.rng
    x, w = reference.uniform(rng, n * n), array("f", [v / 8 for v in reference.uniform(rng, n * n)])
    eager, fast, name = adapter.compiled(adapter.tensor(x, (n, n), ctx.device), adapter.tensor(w, (n, n), ctx.device))
    errors = reference.compare(adapter.numbers(fast), adapter.numbers(eager))
    measured = {"compiler": name, **reference.rounded(errors), **evidence.gather(ctx, adapter.place(fast))}
    fallen = evidence.judge(ctx.device, measured, str(ctx.framework))
    if fallen is not None:
        return fallen
    if not reference.within(errors, 1e-4):
        return failed(
            f"{name} gives another result: {measured['rms_error']} off",
            "run without it until the framework is updated",
            measured,
            {"rms_error_below": 1e-4},
        )
    return passed(measured, {"rms_error_below": 1e-4})


def loader(ctx: Context) -> Outcome:
    """Every sample exactly once, in every way the framework's loader can be started."""
    adapter = ctx.adapter
    if not adapter.has("loaders"):
        return not_applicable(f"{ctx.framework} has no data loader")
    count = 256
    ways = adapter.loaders(count, ctx.device)
    return judge_loaders(ways, count)


def judge_loaders(ways: Sequence[dict[str, Any]], count: int) -> Outcome:
    """``ways``: per way workers, start, labels (as read), sound (data belong to their labels), pinned. Pure."""
    measured = {
        "samples": count,
        "ways": [{key: value for key, value in way.items() if key != "labels"} for way in ways],
    }
    for way in ways:
        name = f"{way['workers']} workers, {way['start']}"
        labels = sorted(way["labels"])
        if labels != list(range(count)):
            lost, twice = count - len(set(labels)), len(labels) - len(set(labels))
            return failed(
                f"{name}: {lost} samples lost, {twice} read twice",
                "the loader's workers do not work here: /dev/shm (host.shm) and the start method are the usual causes",
                measured,
            )
        if not way["sound"]:
            return failed(
                f"{name}: samples arrived with another sample's data",
                "shared memory between workers is broken: see host.shm",
                measured,
            )
        if way.get("pinned") is False:
            return failed(f"{name}: batches are not in pinned memory", "pin_memory had no effect", measured)
    return passed(measured, {"samples": count})
