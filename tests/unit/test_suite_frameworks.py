"""The pure rules of the framework checks: references, wire format, evidence, verdicts."""

from __future__ import annotations

import json
import math
import random
import struct
from array import array
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuimg.suite import challenge, onnx_wire
from gpuimg.suite.frameworks import compute, digits, engines, evidence, inference, lm, reference, training
from gpuimg.suite.frameworks.onnxruntime import provider_place
from gpuimg.suite.registry import FRAMEWORKS, Adapter, load_adapter

# --- references ---------------------------------------------------------------------------------------------------


def product(a: list[float], b: list[float], n: int) -> list[float]:
    return [sum(a[i * n + k] * b[k * n + j] for k in range(n)) for i in range(n) for j in range(n)]


@pytest.fixture
def matrices() -> tuple[array[float], array[float], list[float], int]:
    n, rng = 24, random.Random(1)
    a, b = reference.uniform(rng, n * n), reference.uniform(rng, n * n)
    return a, b, product(list(a), list(b), n), n


def test_right_product_is_within_the_tightest_bound(matrices: Any) -> None:
    a, b, c, n = matrices
    assert reference.within(reference.product_errors(a, b, c, n, random.Random(2)), 1e-12)


@pytest.mark.parametrize("mode", sorted(reference.BOUNDS))
def test_one_wrong_entry_is_found_in_every_format(mode: str, matrices: Any) -> None:
    a, b, c, n = matrices
    c[5 * n + 7] += 40.0
    assert not reference.within(reference.product_errors(a, b, c, n, random.Random(2)), reference.BOUNDS[mode])


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_never_passes(value: float, matrices: Any) -> None:
    a, b, c, n = matrices
    c[-1] = value
    errors = reference.product_errors(a, b, c, n, random.Random(2))
    assert errors["not_finite"] == 1
    assert not reference.within(errors, 1e300)


def test_float32_rounded_to_half_is_not_float32(matrices: Any) -> None:
    a, b, c, n = matrices
    half = [struct.unpack("<e", struct.pack("<e", v))[0] for v in c]
    errors = reference.product_errors(a, b, half, n, random.Random(2))
    assert reference.within(errors, reference.BOUNDS["fp16"])
    assert not reference.within(errors, reference.BOUNDS["fp32"])


def test_convolution_of_an_impulse_is_the_flipped_kernel() -> None:
    x = [0.0] * 25
    x[12] = 1.0
    w = [float(i) for i in range(9)]
    y, dx, dw = reference.convolution(x, w, [1.0] * 25, 1, 1, 1, 5)
    assert [y[r * 5 + c] for r in (1, 2, 3) for c in (1, 2, 3)] == w[::-1]
    assert dx[12] == sum(w)
    assert dw == [1.0] * 9


def test_convolution_gradients_are_those_of_finite_differences() -> None:
    rng = random.Random(3)
    n, c, k, size = 1, 2, 2, 4
    x, w, dy = ([rng.uniform(-1, 1) for _ in range(m)] for m in (n * c * size * size, k * c * 9, n * k * size * size))

    def total(x: list[float], w: list[float]) -> float:
        return reference.dot(reference.convolution(x, w, dy, n, c, k, size)[0], dy)

    _, dx, dw = reference.convolution(x, w, dy, n, c, k, size)
    for i in (0, 9, 21):
        up = [*x[:i], x[i] + 0.5, *x[i + 1 :]]
        assert (total(up, w) - total(x, w)) / 0.5 == pytest.approx(dx[i])
    for i in (0, 17, 30):
        up = [*w[:i], w[i] + 0.5, *w[i + 1 :]]
        assert (total(x, up) - total(x, w)) / 0.5 == pytest.approx(dw[i])


def test_attention_is_causal_and_a_mean() -> None:
    rng = random.Random(4)
    q, k, v = ([rng.uniform(-1, 1) for _ in range(2 * 5 * 3)] for _ in range(3))
    out = reference.attention(q, k, v, 2, 5, 3)
    assert out[0:3] == pytest.approx(v[0:3])  # the first position sees itself alone
    later = [*v[:12], 9.0, 9.0, 9.0, *v[15:]]
    assert reference.attention(q, k, later, 2, 5, 3)[:12] == pytest.approx(out[:12])


@given(st.lists(st.floats(-10, 10), min_size=4, max_size=4), st.floats(0.125, 8))
def test_cosine_ignores_size(values: list[float], scale: float) -> None:
    if max(map(abs, values)) < 1e-3:
        return
    assert reference.cosine(values, [v * scale for v in values]) == pytest.approx(1.0)
    assert reference.cosine(values, [-v for v in values]) == pytest.approx(-1.0)


def test_cosine_with_nan_or_nothing_passes_no_comparison() -> None:
    for bad in ([math.nan, 1.0], [0.0, 0.0], [math.inf, 1.0]):
        assert not reference.cosine([1.0, 1.0], bad) >= -1


@given(st.lists(st.floats(-4, 4, width=32), min_size=6, max_size=6))
def test_int8_rows_are_within_half_a_step(values: list[float]) -> None:
    q, scales = reference.quantise_rows(values, 2, 3)
    for i, value in enumerate(values):
        assert abs(q[i] * scales[i // 3] - value) <= scales[i // 3] * 0.5001 + 1e-12


# --- the data -----------------------------------------------------------------------------------------------------


def test_digits_are_the_real_ones() -> None:
    pixels, labels = digits.load()
    assert len(labels) == 1797
    assert len(pixels) == 1797 * 64
    assert [labels.count(d) for d in range(10)] == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert labels[:10] == list(range(10))
    assert [round(16 * v) for v in pixels[:8]] == [0, 0, 5, 13, 9, 1, 0, 0]


def test_job_follows_the_seed_and_keeps_test_rows_apart() -> None:
    one, two, other = (digits.job("cnn", "cpu", random.Random(seed)) for seed in (1, 1, 2))
    assert one == two
    assert one.order != other.order
    assert len(one.train_y) == 1500
    assert len(one.test_y) == 297
    assert sorted(one.order) == list(range(1500))
    _, labels = digits.load()
    assert sorted(one.train_y + one.test_y) == sorted(labels)


def test_accuracy_counts_nan_and_ties_as_wrong() -> None:
    right = [0.0] * 10
    right[3] = 1.0
    assert digits.accuracy(right, [3]) == 1.0
    assert digits.accuracy(right, [4]) == 0.0
    assert digits.accuracy([math.nan] * 10, [3]) == 0.0
    assert digits.accuracy([0.0] * 10, [3]) == 0.0


# --- verdicts -----------------------------------------------------------------------------------------------------


def context(device: str = "cpu", gpu: dict[str, Any] | None = None, row: dict[str, Any] | None = None) -> Any:
    adapter = SimpleNamespace(has=lambda name: False)
    return SimpleNamespace(
        device=device,
        framework="torch",
        adapter=adapter,
        gpus=[gpu or {}],
        card=lambda index=0: row,
        floor=lambda key, default=None: default,
    )


@pytest.mark.parametrize(
    ("found", "word"),
    [
        ({"result_device": "cuda:0", "contexts_on_gpus": [0], "allocated_bytes": 512}, None),
        ({"result_device": "cuda:0", "contexts_on_gpus": None}, None),
        ({"result_device": "cpu", "contexts_on_gpus": [0]}, "computed on 'cpu'"),
        ({"result_device": "mixed", "contexts_on_gpus": [0]}, "computed on 'mixed'"),
        ({"result_device": "cuda:0", "contexts_on_gpus": []}, "no CUDA context"),
        ({"result_device": "cuda:0", "contexts_on_gpus": [0], "allocated_bytes": 0}, "no GPU memory"),
        ({}, "computed on 'None'"),
    ],
)
def test_evidence_of_the_device(found: dict[str, Any], word: str | None) -> None:
    outcome = evidence.judge("cuda", found, "torch")
    assert (outcome is None) if word is None else (outcome is not None and word in str(outcome.reason))
    assert evidence.judge("cpu", found, "torch") is None


def events(*providers: tuple[str, str]) -> list[dict[str, Any]]:
    return [{"cat": "Node", "args": {"op_name": op, "provider": p}} for op, p in providers]


def test_provider_is_read_from_the_profile_not_from_the_list() -> None:
    cuda, cpu = "CUDAExecutionProvider", "CPUExecutionProvider"
    assert provider_place(events(("MatMul", cuda)), [cuda, cpu]) == "cuda:0"
    assert provider_place(events(("MatMul", cpu)), [cuda, cpu]) == "cpu"
    assert provider_place(events(("MatMul", cuda), ("Conv", cpu)), [cuda, cpu]) == "mixed"
    assert provider_place(events(("MatMul", cuda), ("MemcpyToHost", cpu)), [cuda, cpu]) == "cuda:0"
    assert provider_place([], [cpu]) == "cpu"


def test_speed_is_judged_by_the_card() -> None:
    ms = [1.40] * 50  # 785 TFLOP/s
    row = {"name": "NVIDIA H200", "tensor16_dense_tflops": 989}
    assert compute.judge_matmul_speed(context("cpu", row=row), ms, 8192, "bf16").status == "pass"
    assert compute.judge_matmul_speed(context("cpu", row=row), [2.0] * 9, 8192, "bf16").status == "fail"
    assert compute.judge_matmul_speed(context("cpu", row=row), [0.7] * 9, 8192, "bf16").status == "fail"
    unknown = compute.judge_matmul_speed(context("cpu"), ms, 8192, "bf16")
    assert unknown.status == "skip"
    assert unknown.measured["tflops"] == pytest.approx(785.4, abs=0.1)


@pytest.mark.parametrize(
    ("name", "fraction"),
    [
        ("NVIDIA A100-SXM4-80GB", 0.70),
        ("NVIDIA H100 80GB HBM3", 0.70),
        ("NVIDIA A100-PCIE-40GB", 0.60),
        ("NVIDIA H100 PCIe", 0.60),
        ("NVIDIA A10", 0.60),
        ("NVIDIA L4", 0.60),
        ("Tesla T4", 0.60),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 0.60),
        ("NVIDIA GeForce RTX 4090", 0.85),
    ],
)
def test_share_of_the_spec_follows_the_kind_of_board(name: str, fraction: float) -> None:
    assert compute.matmul_fraction(name) == fraction


@pytest.mark.parametrize(
    ("gpu", "floor"),
    [
        ({"pcie_gen_max": 5, "pcie_width_max": 16}, 48.0),
        ({"pcie_gen_max": 4, "pcie_width_max": 8}, 10.5),
        ({"pcie_gen_max": 3, "pcie_width_max": 16, "pcie_gen": 1}, 9.0),
        ({"pcie_gen": 1}, None),
        ({}, None),
    ],
)
def test_link_floor(gpu: dict[str, Any], floor: float | None) -> None:
    assert compute.link_floor(gpu) == floor


def ways(**changes: Any) -> list[dict[str, Any]]:
    way = {"workers": 2, "start": "fork", "labels": list(range(8)), "sound": True, "pinned": None}
    return [{**way, "workers": 0}, {**way, **changes}]


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({}, None),
        ({"labels": list(range(7))}, "1 samples lost"),
        ({"labels": [0, *range(8)]}, "1 read twice"),
        ({"sound": False}, "another sample's data"),
        ({"pinned": False}, "not in pinned memory"),
    ],
)
def test_loader_verdict(changes: dict[str, Any], word: str | None) -> None:
    outcome = training.judge_loaders(ways(**changes), 8)
    assert (outcome.status == "pass") if word is None else (word in str(outcome.reason))


def test_quantised_verdict() -> None:
    want = [float(i % 10) - 4 for i in range(20)]
    cpu = {"result_device": "cpu"}
    good = inference.judge_quantised(context(), "int8", [v * 1.01 for v in want], want, 10, 40, cpu)
    assert good.status == "pass"
    assert inference.judge_quantised(context(), "int8", want[::-1], want, 10, 40, cpu).status == "fail"
    assert inference.judge_quantised(context(), "int8", [math.nan] * 20, want, 10, 40, cpu).status == "fail"
    bigger = inference.judge_quantised(context(), "int8", want, want, 41, 40, cpu)
    assert "not smaller" in str(bigger.reason)


def test_language_model_verdict() -> None:
    fine = {"rms_error": 1e-6, "peak_error": 1e-6, "not_finite": 0}
    nan = reference.compare([math.nan], [1.0])
    cpu = {"result_device": "cpu"}

    def judge(cache: dict[str, float], batch: dict[str, float], same: bool) -> Any:
        return inference.judge_lm(context(), {"cache": cache, "batch": batch}, same, [1, 2], 5.0, cpu)

    assert judge(fine, fine, True).status == "pass"
    assert "cache" in judge(nan, fine, True).reason
    assert "batch" in judge(fine, nan, True).reason
    assert "two different answers" in judge(fine, fine, False).reason
    json.dumps(judge(nan, fine, True).measured, allow_nan=False)


def test_largest_takes_the_first_of_equals() -> None:
    assert lm.largest([1.0, 3.0, 3.0]) == 1


# --- challenge ----------------------------------------------------------------------------------------------------


def test_challenge_follows_the_nonce_and_is_exact_in_float32() -> None:
    assert challenge.expected("a" * 32, "compute.challenge") == challenge.expected("a" * 32, "compute.challenge")
    assert challenge.expected("a" * 32, "compute.challenge") != challenge.expected("b" * 32, "compute.challenge")
    a, b = challenge.operands(challenge.seed_of("n", "compute.challenge"))
    assert max(abs(v) for row in challenge.product(a, b) for v in row) < 2**24


# --- ONNX bytes ---------------------------------------------------------------------------------------------------


@given(st.integers(-(2**63), 2**63 - 1))
def test_varint_round_trip(value: int) -> None:
    data, number, shift = onnx_wire.varint(value), 0, 0
    for byte in data:
        number |= (byte & 0x7F) << shift
        shift += 7
    assert number == value & (2**64 - 1)
    assert all(byte & 0x80 for byte in data[:-1])
    assert not data[-1] & 0x80


def test_attribute_types() -> None:
    assert onnx_wire.attribute("a", 1)[-3:] == onnx_wire.number(20, 2)
    assert onnx_wire.attribute("a", 1.5)[-3:] == onnx_wire.number(20, 1)
    assert onnx_wire.attribute("a", [1, 2])[-3:] == onnx_wire.number(20, 7)
    for bad in ("text", True, None):
        with pytest.raises(TypeError):
            onnx_wire.attribute("a", bad)  # type: ignore[arg-type]


# --- engines ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("engine", "cc", "dtype", "word"),
    [
        ("vllm", (6, 1), "float16", "7.0"),
        ("vllm", (7, 5), "bfloat16", "8.0"),
        ("vllm", (7, 0), "float16", None),
        ("vllm", (9, 0), "bfloat16", None),
        ("tensorrt_llm", (7, 5), "float16", "8.0"),
        ("tensorrt_llm", (8, 9), "float16", None),
        ("vllm", None, "float16", None),
    ],
)
def test_engines_refuse_cards_they_cannot_serve(
    engine: str, cc: tuple[int, int] | None, dtype: str, word: str | None
) -> None:
    why = engines.refusal(engine, cc, dtype)
    assert (why is None) if word is None else (why is not None and word in why)


def test_tiny_model_is_a_valid_safetensors_file(tmp_path: Path) -> None:
    engines.write_model(tmp_path, random.Random(1))
    config = json.loads((tmp_path / "config.json").read_text())
    data = (tmp_path / "model.safetensors").read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + length])
    end = 0
    for entry in header.values():
        start, stop = entry["data_offsets"]
        assert start == end
        count = math.prod(entry["shape"])
        assert stop - start == 2 * count
        end = stop
    assert 8 + length + end == len(data)
    assert header["model.embed_tokens.weight"]["shape"] == [config["vocab_size"], config["hidden_size"]]
    assert sum(name.endswith("q_proj.weight") for name in header) == config["num_hidden_layers"]


def test_prompts_share_three_cache_blocks() -> None:
    asked = engines.prompts(random.Random(1))
    assert len(asked) == 16
    assert len({tuple(p[:48]) for p in asked}) == 1
    assert len({tuple(p) for p in asked}) == 16


def test_divergence_stops_at_the_first_difference() -> None:
    assert engines.divergences([[1, 2, 3]], [[1, 2, 3]], [[1.0, 1.0, 1.0]]) == []
    found = engines.divergences([[1, 2, 3], [4, 5, 6]], [[1, 9, 9], [4, 5, 6]], [[1.0, 0.02, 5.0], [1.0] * 3])
    assert found == [{"prompt": 0, "position": 1, "gap": 0.02}]
    assert engines.divergences([[1, 2]], [[1]], [[1.0, 1.0]])[0]["gap"] == math.inf


# --- adapters -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_adapter_has_the_shape_and_imports_no_framework(name: str) -> None:
    module = load_adapter(name)
    assert isinstance(module.DISTRIBUTIONS, tuple)
    assert isinstance(module.MODULE, str)
    adapter = Adapter(name)
    core = "versions arch_list library_dirs touch seen_gpus modes tensor numbers place matmul"
    for function in core.split():
        assert adapter.has(function), function
