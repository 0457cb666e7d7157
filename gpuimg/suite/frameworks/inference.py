"""infer.*: saved models give the same answers in another process; quantised ones nearly so; a language model decodes.

The expected outputs are worked out in plain Python (float64) from the weights, not by the framework.
"""

from __future__ import annotations

import importlib.util
import math
import os
import time
from array import array
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from ..registry import Context, Outcome, failed, not_applicable, passed, skipped
from . import digits, evidence, lm, reference
from .adapter import Layer

ROWS = 8
"""Digits shown to the models."""
TOLERANCE = 1e-4
"""Relative root-mean-square error of float32 outputs after three layers."""
COSINE = 0.99
"""Least cosine between an int8 model's outputs and full precision, per input."""
LM_TOLERANCE = 1e-3
"""Relative error between two orders of the same float32 sums through two transformer layers."""


def task(ctx: Context) -> tuple[list[Layer], array[float], array[float]]:
    """A perceptron with random weights, real digits as inputs, and the outputs in plain Python."""
    rng = ctx.rng
    layers = []
    for inputs, outputs in ((64, 256), (256, 256), (256, 10)):
        scale = (6.0 / inputs) ** 0.5
        w = array("f", [scale * v for v in reference.uniform(rng, inputs * outputs)])
        b = array("f", [0.1 * v for v in reference.uniform(rng, outputs)])
        layers.append(Layer(w, b, inputs, outputs))
    pixels, labels = digits.load()
    x = array("f")
    for _ in range(ROWS):
        row = rng.randrange(len(labels))
        x.extend(pixels[row * 64 : row * 64 + 64])
    return layers, x, outputs_of(layers, x, ROWS)


def outputs_of(layers: Sequence[Layer], x: Sequence[float], rows: int) -> array[float]:
    """The perceptron's outputs in float64."""
    out = array("d")
    columns = [[layer.w[j :: layer.outputs] for j in range(layer.outputs)] for layer in layers]
    width = layers[0].inputs
    for row in range(rows):
        values: Sequence[float] = x[row * width : (row + 1) * width]
        for at, layer in enumerate(layers):
            values = [reference.dot(values, columns[at][j]) + layer.b[j] for j in range(layer.outputs)]
            if at < len(layers) - 1:
                values = [max(0.0, v) for v in values]
        out.extend(values)
    return out


def disk_size(path: str) -> int:
    """Bytes of a file, of the files beside it that share its name, or of a folder."""
    if os.path.isdir(path):
        return sum(os.path.getsize(os.path.join(root, name)) for root, _, names in os.walk(path) for name in names)
    folder, stem = os.path.split(path)
    return sum(os.path.getsize(os.path.join(folder, n)) for n in os.listdir(folder) if n.startswith(stem))


def run_saved(argument: dict[str, Any]) -> dict[str, Any]:
    """In the fresh process: load a saved model and run it."""
    from ..registry import Adapter

    adapter = Adapter(argument["framework"])
    run = adapter.quantised_run if argument["quantised"] else adapter.model_run
    out, place = run(argument["path"], array("f", argument["x"]), argument["rows"], argument["device"])
    found = evidence.gather(SimpleNamespace(adapter=adapter, device=argument["device"]), place)
    # NaN and infinity are no JSON: they travel as text and are read back by float()
    return {"out": [v if math.isfinite(v) else str(v) for v in out], "evidence": found}


def _fresh(ctx: Context, path: str, x: array[float], quantised: bool) -> tuple[list[float], dict[str, Any]]:
    answer = ctx.call_fresh(
        "frameworks.inference:run_saved",
        {
            "framework": ctx.framework,
            "path": path,
            "x": list(x),
            "rows": ROWS,
            "device": ctx.device,
            "quantised": quantised,
        },
    )
    return [float(v) for v in answer["out"]], answer["evidence"]


def roundtrip(ctx: Context) -> Outcome:
    """Save, load in a fresh process, compare with plain Python."""
    adapter = ctx.adapter
    if not adapter.has("model_save"):
        return not_applicable(f"{ctx.framework} saves no models")
    layers, x, want = task(ctx)
    path = str(ctx.workdir / "model")
    kind = adapter.model_save(layers, path, ctx.device)
    out, found = _fresh(ctx, path, x, False)
    errors = reference.compare(out, want)
    measured = {"format": kind, "bytes": disk_size(path), **reference.rounded(errors), **found}
    expected = {"rms_error_below": TOLERANCE}
    fallen = evidence.judge(ctx.device, found, str(ctx.framework))
    if fallen is not None:
        return fallen
    if not reference.within(errors, TOLERANCE):
        return failed(
            f"the loaded model answers differently: {measured['rms_error']} off",
            "NaN: see compute.matmul; a small difference: TF32 is on; else the format does not fit the framework",
            measured,
            expected,
        )
    return passed(measured, expected)


def quantised(ctx: Context) -> Outcome:
    """Quantise, save, load in a fresh process, run, compare; and it must be smaller."""
    adapter = ctx.adapter
    if not adapter.has("quantised_save"):
        return not_applicable(f"{ctx.framework} has no quantised models")
    layers, x, want = task(ctx)
    full, path = str(ctx.workdir / "full"), str(ctx.workdir / "int8")
    adapter.model_save(layers, full, ctx.device)
    scheme = adapter.quantised_save(layers, path, ctx.device)
    out, found = _fresh(ctx, path, x, True)
    return judge_quantised(ctx, scheme, out, want, disk_size(path), disk_size(full), found)


def judge_quantised(
    ctx: Context,
    scheme: str,
    out: Sequence[float],
    want: Sequence[float],
    size: int,
    full_size: int,
    found: dict[str, Any],
) -> Outcome:
    """Cosine of each row of ten against full precision, and the size on disk."""
    rows = [reference.cosine(out[i : i + 10], want[i : i + 10]) for i in range(0, len(want), 10)]
    good = [value for value in rows if value >= COSINE]
    worst = min(rows, key=lambda v: v if v == v else -2.0)
    measured = {
        "scheme": scheme,
        "cosine_worst": round(worst, 5) if math.isfinite(worst) else str(worst),
        "bytes": size,
        "bytes_full_precision": full_size,
        **found,
    }
    expected = {"cosine_at_least": COSINE, "bytes_below": full_size}
    fallen = evidence.judge(ctx.device, found, str(ctx.framework))
    if fallen is not None:
        return fallen
    if len(good) != len(rows):
        return failed(
            f"the int8 model answers differently: cosine {measured['cosine_worst']} with full precision",
            "its int8 kernels are wrong on this processor, or its scales were lost in saving",
            measured,
            expected,
        )
    if size >= full_size:
        return failed(
            f"the int8 model is not smaller: {size} bytes against {full_size}",
            "nothing was quantised",
            measured,
            expected,
        )
    return passed(measured, expected)


def run_onnx(argument: dict[str, Any]) -> dict[str, Any]:
    """In the fresh process: run an exported model with ONNX Runtime on the CPU."""
    import numpy
    import onnxruntime

    session = onnxruntime.InferenceSession(argument["path"], providers=["CPUExecutionProvider"])
    x = numpy.array(argument["x"], numpy.float32).reshape(argument["rows"], 64)
    out = session.run(None, {session.get_inputs()[0].name: x})[0].reshape(-1)
    return {"out": [float(v) if math.isfinite(v) else str(v) for v in out], "onnxruntime": onnxruntime.__version__}


def onnx(ctx: Context) -> Outcome:
    """Export to ONNX, run it with ONNX Runtime, compare."""
    adapter = ctx.adapter
    if not adapter.has("onnx_export"):
        return not_applicable(f"{ctx.framework} has no ONNX export of its own")
    layers, x, want = task(ctx)
    path = str(ctx.workdir / "model.onnx")
    try:
        adapter.onnx_export(layers, path)
    except ImportError as error:
        return skipped(f"the export needs a package that is not installed: {error}")
    except Exception as error:
        # torch wraps the ImportError in an error of its own
        if "not installed" in str(error):
            return skipped(f"the export needs a package that is not installed: {str(error)[:200]}")
        raise
    if importlib.util.find_spec("onnxruntime") is None or importlib.util.find_spec("numpy") is None:
        return skipped("exported, but onnxruntime is not installed: not run", {"bytes": disk_size(path)})
    answer = ctx.call_fresh("frameworks.inference:run_onnx", {"path": path, "x": list(x), "rows": ROWS})
    errors = reference.compare([float(v) for v in answer["out"]], want)
    measured = {"bytes": disk_size(path), "onnxruntime": answer["onnxruntime"], **reference.rounded(errors)}
    if not reference.within(errors, TOLERANCE):
        return failed(
            f"the exported model answers differently: {measured['rms_error']} off",
            "exporter and runtime do not fit: try another opset, or an onnxruntime of the same year",
            measured,
            {"rms_error_below": TOLERANCE},
        )
    return passed(measured, {"rms_error_below": TOLERANCE})


def language_model(ctx: Context) -> Outcome:
    """Prefill, cached decoding, batch and repetition must give one answer."""
    adapter = ctx.adapter
    if not adapter.has("lm_ops"):
        return not_applicable(f"{ctx.framework} has no operations for a language model here")
    ops = adapter.lm_ops(ctx.device)
    rng = ctx.rng
    model = lm.build(ops, rng)
    prompts = [[rng.randrange(lm.VOCAB) for _ in range(10)] for _ in range(4)]
    count = 6
    tokens, cached, last = lm.generate(model, prompts[0], count)
    started = time.monotonic()
    again, cached_again, _ = lm.generate(model, prompts[0], count)
    seconds = time.monotonic() - started
    whole = ops.numbers(lm.step(model, [prompts[0] + tokens[:-1]], None)[0])
    plain = list(whole[(len(prompts[0]) - 1) * lm.VOCAB :])
    batch = list(ops.numbers(lm.step(model, prompts, None)[0]))
    single: list[float] = []
    for prompt in prompts:
        single += list(ops.numbers(lm.step(model, [prompt], None)[0]))
    errors = {
        "cache": reference.compare(cached, plain),
        "batch": reference.compare(batch, single),
    }
    same = tokens == again and cached == cached_again
    return judge_lm(ctx, errors, same, tokens, count / seconds, evidence.gather(ctx, ops.place(last)))


def judge_lm(
    ctx: Context,
    errors: dict[str, dict[str, float]],
    same: bool,
    tokens: Sequence[int],
    rate: float,
    found: dict[str, Any],
) -> Outcome:
    """The verdict over the four ways."""
    measured = {
        "cache_rms_error": reference.rounded(errors["cache"])["rms_error"],
        "batch_rms_error": reference.rounded(errors["batch"])["rms_error"],
        "deterministic": same,
        "distinct_tokens": len(set(tokens)),
        "tokens_per_s": round(rate, 1),
        **found,
    }
    expected = {"rms_error_below": LM_TOLERANCE, "deterministic": True}
    fallen = evidence.judge(ctx.device, found, str(ctx.framework))
    if fallen is not None:
        return fallen
    if not reference.within(errors["cache"], LM_TOLERANCE):
        return failed(
            f"decoding with the key/value cache differs from decoding without: {measured['cache_rms_error']}",
            "NaN: see compute.matmul; else attention or concatenation is wrong on this device",
            measured,
            expected,
        )
    if not reference.within(errors["batch"], LM_TOLERANCE):
        return failed(
            f"a prompt answers differently in a batch than alone: {measured['batch_rms_error']}",
            "a batched product is wrong on this device: see compute.matmul",
            measured,
            expected,
        )
    if not same:
        return failed(
            "the same prompt gave two different answers (greedy, same process)",
            "a kernel that is not deterministic, or memory that flips bits: run it again, watch ECC (card.wear)",
            measured,
            expected,
        )
    return passed(measured, expected)
