"""Faults planted in frameworks: each must be caught by the check that should catch it, with the right hint.

The checks run as they do in an image: in a process of their own, judged by the runner. ONNX Runtime is the real one
with a fault put in front of it; the stand-ins for CuPy, MindSpore and JAX claim a GPU that this machine lacks.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gpuimg.suite.profiles import load_profile
from gpuimg.suite.registry import all_checks
from gpuimg.suite.runner import Options, Run

pytest.importorskip("numpy", reason="the stand-ins compute with numpy (extra 'test')")
STANDINS = Path(__file__).parent / "standins"
H200 = {
    "name": "NVIDIA H200",
    "pci_device_id": "2335",
    "compute_capability": "9.0",
    "memory_mib": 143771,
    "pcie_gen_max": 5,
    "pcie_width_max": 16,
}


@dataclass(frozen=True)
class Fault:
    """A row of the table: with this fault in that framework, ``check`` ends so, and says so."""

    framework: str
    fault: str
    check: str
    status: str
    reason: str
    hint: str
    device: str = "cpu"
    context: int = 1
    """What the fake libcuda says about this process's primary context, on ``cuda`` rows."""
    timeout_scale: float = 1.0
    environment: dict[str, str] = field(default_factory=dict)


ORT, CUPY, MS = "onnxruntime", "cupy", "mindspore"
TABLE = [
    Fault(ORT, "nan", "compute.matmul", "fail", "1 of 262144 entries of the product are NaN", "broken kernel"),
    Fault(ORT, "wrong-row", "compute.matmul", "fail", "wrong product in fp32", "faulty card"),
    Fault(ORT, "low-precision", "compute.matmul", "fail", "wrong product in fp32", "TF32 switched on"),
    Fault(ORT, "off-by-one", "compute.challenge", "fail", "challenge is wrong", "faulty card"),
    Fault(ORT, "nan", "compute.challenge", "fail", "not whole", "broken kernel"),
    Fault(ORT, "conv", "compute.conv", "fail", "convolution is wrong: forward", "cuDNN does not fit"),
    Fault(ORT, "attention", "compute.attention", "fail", "attention is wrong", "fused kernel"),
    Fault(ORT, "nan", "infer.roundtrip", "fail", "answers differently: inf", "compute.matmul"),
    Fault(ORT, "int8-garbage", "infer.quantised", "fail", "int8 model answers differently", "int8 kernels"),
    Fault(ORT, "cache", "infer.lm", "fail", "with the key/value cache differs", "concatenation"),
    Fault(ORT, "batch", "infer.lm", "fail", "differently in a batch", "batched product"),
    Fault(ORT, "not-deterministic", "infer.lm", "fail", "two different answers", "not deterministic"),
    Fault(ORT, "missing-library", "compute.matmul", "error", "libcudnn_engines_precompiled.so.9", "not in the image"),
    Fault(ORT, "memory", "compute.matmul", "fail", "MemoryError", "more memory"),
    Fault(ORT, "segfault", "compute.matmul", "fail", "SIGSEGV", "two versions of one library"),
    Fault(ORT, "abort", "compute.matmul", "fail", "SIGABRT", "last words"),
    Fault(ORT, "hang", "compute.matmul", "fail", "no answer within", "hung", timeout_scale=0.04),
    Fault(ORT, "exit-0", "compute.matmul", "fail", "gave no result and ended with 0", "ended the interpreter"),
    Fault(ORT, "zombie", "compute.challenge", "fail", "processes running", "GPU memory"),
    Fault(ORT, "no-kernel", "compute.matmul", "error", "no kernel image", "no machine code for this card"),
    Fault(ORT, "mixed-cudnn", "compute.conv", "error", "SUBLIBRARY_VERSION_MISMATCH", "one cuDNN"),
    Fault(ORT, "none", "compute.matmul", "fail", "computed on 'cpu', not on the GPU", "fell back", device="cuda"),
    Fault(ORT, "none", "infer.roundtrip", "fail", "computed on 'cpu', not on the GPU", "fell back", device="cuda"),
    Fault(MS, "cpu-fallback", "compute.matmul", "fail", "computed on 'cpu'", "fell back", device="cuda"),
    Fault(CUPY, "none", "compute.matmul", "fail", "no CUDA context on any GPU", "fell back", device="cuda", context=0),
    Fault(CUPY, "holds-no-memory", "compute.matmul", "fail", "holds no GPU memory", "fell back", device="cuda"),
    Fault(CUPY, "silent-tf32", "compute.matmul", "fail", "wrong product in fp32", "TF32 switched on", device="cuda"),
    Fault(CUPY, "slow-card", "compute.matmul_speed", "fail", "below the floor", "throttled", device="cuda"),
    Fault(CUPY, "impossible-speed", "compute.matmul_speed", "fail", "more than this card can do", "", device="cuda"),
    Fault(CUPY, "does-not-learn", "train.epoch", "fail", "does not learn", "gradients", device="cuda"),
    Fault(CUPY, "disagrees-with-cpu", "train.epoch", "fail", "CPU and GPU disagree", "compute.conv", device="cuda"),
    Fault(MS, "numpy-abi", "compute.matmul", "fail", "built for NumPy 1.x", "numpy<2"),
    Fault(MS, "checkpoint-bit", "train.checkpoint", "fail", "1 of 6 tensors came back changed", "disk"),
    Fault(MS, "checkpoint-half", "train.checkpoint", "fail", "1 of 6 tensors came back changed", "disk"),
    Fault(MS, "fork-unsafe", "train.loader", "error", "forked subprocess", "spawn"),
    Fault(MS, "worker-bus-error", "train.loader", "error", "Bus error", "--shm-size"),
    Fault(MS, "fork-deadlock", "train.loader", "fail", "no answer within", "hung", timeout_scale=0.02),
    Fault(MS, "lost-samples", "train.loader", "fail", "4 samples lost", "/dev/shm"),
    Fault(MS, "doubled-samples", "train.loader", "fail", "1 samples lost, 1 read twice", "/dev/shm"),
    Fault(MS, "swapped-samples", "train.loader", "fail", "another sample's data", "shared memory"),
    Fault("jax", "no-ptxas", "compute.matmul", "error", "PTX compilation provider", "ptxas", device="cuda"),
]
SOUND = [
    Fault(ORT, "none", "compute.matmul", "pass", "", ""),
    Fault(ORT, "none", "infer.lm", "pass", "", ""),
    Fault(ORT, "none", "infer.quantised", "pass", "", ""),
    Fault(MS, "none", "compute.matmul", "pass", "", ""),
    Fault(MS, "none", "train.checkpoint", "pass", "", ""),
    Fault(MS, "none", "train.loader", "pass", "", ""),
    Fault(CUPY, "none", "compute.matmul", "pass", "", "", device="cuda"),
    Fault(CUPY, "none", "compute.matmul_speed", "pass", "", "", device="cuda"),
    Fault(CUPY, "none", "train.epoch", "pass", "", "", device="cuda"),
]
"""The same without a fault: a check that always failed would catch everything."""

FAKE_CUDA = """
#define OK 0
int cuInit(unsigned f) { return OK; }
int cuDeviceGetCount(int *n) { *n = 1; return OK; }
int cuDeviceGet(int *d, int i) { *d = i; return OK; }
int cuDevicePrimaryCtxGetState(int d, unsigned *f, int *active) { *f = 0; *active = CONTEXT; return OK; }
"""


@pytest.fixture(scope="module")
def fake_cuda(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Folders with a libcuda.so.1 that says this process has (1) or has not (0) a context on its one GPU."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler to make a fake libcuda with")
    folders = {}
    for state in (0, 1):
        folder = tmp_path_factory.mktemp(f"libcuda{state}")
        source = folder / "cuda.c"
        source.write_text(FAKE_CUDA.replace("CONTEXT", str(state)))
        library = folder / "libcuda.so.1"
        subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
        folders[state] = folder
    return folders


def perform(row: Fault, libraries: dict[int, Path], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The check's line as a run would write it."""
    if row.framework == ORT and importlib.util.find_spec("onnxruntime") is None:
        pytest.skip("onnxruntime is not installed (extra 'test')")
    monkeypatch.setenv("PYTHONPATH", str(STANDINS))
    monkeypatch.setenv("FAULT", row.fault)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(libraries[row.context]))
    checks = all_checks()
    options = Options(load_profile("full", checks), "full", row.framework, timeout_scale=row.timeout_scale)
    run = Run(options)
    run.framework, run.device = row.framework, row.device
    run.environment = {"gpus": [H200] if row.device == "cuda" else []}
    try:
        return run.run_check(checks[row.check], required=True)
    finally:
        shutil.rmtree(run.workdir, ignore_errors=True)


def name_of(row: Fault) -> str:
    return f"{row.framework}-{row.fault}-{row.check}"


@pytest.mark.parametrize("row", TABLE, ids=name_of)
def test_fault_is_caught_with_its_hint(row: Fault, fake_cuda: dict[int, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    line = perform(row, fake_cuda, monkeypatch)
    assert line["status"] == row.status, line
    assert row.reason in line["reason"], line["reason"]
    assert row.hint in (line["hint"] or ""), line["hint"]


@pytest.mark.parametrize("row", SOUND, ids=name_of)
def test_sound_framework_passes(row: Fault, fake_cuda: dict[int, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    line = perform(row, fake_cuda, monkeypatch)
    assert line["status"] == "pass", line


def test_table_is_large_enough() -> None:
    assert len(TABLE) >= 25
    assert len({name_of(row) for row in TABLE}) == len(TABLE)
