"""The suite against real frameworks on the CPU, from its one file, as it runs in a container.

A framework is taken from this interpreter's environment, or from the one whose interpreter
``GPUIMG_TEST_PYTHON_<FRAMEWORK>`` names (``GPUIMG_TEST_PYTHON_TORCH=/opt/torch/bin/python``). Those that are not there
are skipped with that reason; ONNX Runtime comes with the ``test`` extra.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpuimg.suite.document import read_document
from gpuimg.suite.environment import FRAMEWORK_PACKAGES
from gpuimg.suite.frameworks import inference
from gpuimg.suite.pack import build_zipapp

TRAINS = ("torch", "tensorflow", "jax", "paddlepaddle", "mindspore")


def interpreter(framework: str) -> str:
    """A Python that has the framework; skips the test when there is none."""
    variable = f"GPUIMG_TEST_PYTHON_{framework.upper()}"
    named = os.environ.get(variable)
    if named:
        return named
    if importlib.util.find_spec(FRAMEWORK_PACKAGES[framework][0]) is None:
        pytest.skip(f"{framework} is not installed here, and {variable} names no Python that has it")
    return sys.executable


@pytest.mark.slow
@pytest.mark.parametrize("framework", [*TRAINS, "onnxruntime"])
def test_every_check_that_runs_on_a_cpu_passes(framework: str, tmp_path: Path) -> None:
    python = interpreter(framework)
    suite = tmp_path / "gpuimg-suite.pyz"
    build_zipapp(suite)
    command = [python, str(suite), "--device", "cpu", "--framework", framework, "--profile", "full", "--json"]
    for pattern in ("host.*", "card.*", "driver.*", "triangle.*", "dist.*", "mon.*"):
        command += ["--skip", pattern]
    done = subprocess.run(
        [*command, "--nonce", "n" * 32], capture_output=True, text=True, timeout=550, cwd=tmp_path, check=False
    )
    document = read_document(done.stdout, "n" * 32)
    lines = {line["id"]: line for line in document.checks}
    bad = {name: line for name, line in lines.items() if line["status"] not in ("pass", "skip")}
    assert not bad
    assert done.returncode == 0, done.stderr
    must = {"compute.matmul", "compute.challenge", "compute.conv", "infer.roundtrip", "infer.quantised", "infer.lm"}
    must |= {"train.epoch", "train.checkpoint", "train.loader"} if framework in TRAINS else set()
    must -= {"train.loader"} if framework == "jax" else set()
    assert {name for name in must if lines[name]["status"] != "pass"} == set()
    for name, line in lines.items():
        assert line["status"] == "pass" or line["reason"], name


def test_models_in_bytes_are_what_onnx_runtime_reads(tmp_path: Path) -> None:
    """The hand-written protobuf, read by the real library and, where it is installed, by onnx's own checker."""
    pytest.importorskip("onnxruntime", reason="onnxruntime is in the extra 'test'")
    from array import array

    from gpuimg.suite.frameworks import onnxruntime as adapter
    from gpuimg.suite.frameworks.adapter import Layer

    layers = [Layer(array("f", [0.5] * 64 * 10), array("f", [0.25] * 10), 64, 10)]
    path = tmp_path / "model"
    adapter.model_save(layers, str(path), "cpu")
    x = [1.0] * 64
    out, place = adapter.model_run(str(path), x, 1, "cpu")
    assert place == "cpu"
    assert list(out) == list(inference.outputs_of(layers, x, 1)) == [32.25] * 10
    if importlib.util.find_spec("onnx") is not None:
        import onnx

        onnx.checker.check_model(onnx.load_model_from_string(path.read_bytes()), full_check=True)
