"""Planted faults: each must be caught by the check that should catch it, with a hint that helps.

One table for all that needs no framework: process faults go through the real runner (``suite_harness.py``), environment
faults through the real check, faults of cards, curves, sweeps and versions through the rule on recorded facts. Faults
of frameworks (NaN kernel, CPU fallback, wrong library …) are in ``test_suite_frameworks*.py``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gpuimg.suite import judge_card, judge_curve, judge_host, judge_sweep, judge_versions
from gpuimg.suite.cards import by_name, by_pci, driver_tables
from gpuimg.suite.checks_dist import exact_outcome
from gpuimg.suite.checks_host import clock_problem
from gpuimg.suite.dist_workers import compare, contribution
from gpuimg.suite.hints import hint_for
from gpuimg.suite.judge_host import GIB, MIB

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
DATA = HERE.parent / "data" / "suite"

Found = tuple[str, str]
"""(what was said, what to do)."""


@dataclass(frozen=True)
class Fault:
    """A row: what is broken, which check must say so, a piece of its reason and of its hint."""

    id: str
    fault: str
    check: str
    plant: Callable[[], list[Found]]
    reason: str
    hint: str


def problems(found: list[judge_host.Problem]) -> list[Found]:
    return [(p.what, p.fix) for p in found]


# --- recorded facts ---------------------------------------------------------------------------------------------------

H200 = {
    "index": 0,
    "name": "NVIDIA H200",
    "cuda_name": "NVIDIA H200",
    "pci_device_id": "2335",
    "pci_vendor_id": "10DE",
    "compute_capability": "9.0",
    "memory_mib": 143771,
    "sm_count": 132,
    "pcie_width": 16,
    "pcie_width_max": 16,
    "pcie_gen": 5,
    "pcie_gen_max": 5,
    "power_limit_w": 700.0,
    "power_default_w": 700.0,
    "sm_clock_max_mhz": 1980,
    "memory_used_mib": 600,
    "brand": 14,
}
"""As NVML and libcuda give it on the recorded machine."""


def identity(**changes: Any) -> list[Found]:
    gpu = {**H200, **changes}
    row, same = by_name(gpu["name"]), by_pci(gpu["pci_device_id"])
    return problems(judge_card.identity_problems(gpu, row, same))


def curve() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((DATA / "h200-curve-bf16-matmul.json").read_text())
    return rows


def judged(change: Callable[[int, dict[str, Any]], dict[str, Any]] = lambda i, row: row) -> list[Found]:
    """The recorded load (2.4 s to 14.4 s) with every row changed, judged as mon.curve does."""
    rows = [change(i, dict(row)) for i, row in enumerate(curve())]
    inside = judge_curve.cut(rows, 2.4, 14.4)
    return problems(judge_curve.curve_problems(inside, power_limit_w=700.0, sm_clock_max_mhz=1980.0))


def sweep(change: Callable[[int, list[float]], list[float]], ranks: int = 8, peak: float = 470.0) -> list[Found]:
    """A healthy 8 x H200 sweep (latency 20 µs, plateau ``peak`` GB/s), changed, judged as dist.busbw does."""
    times = {}
    for power in range(11):
        size = MIB << power
        base = 20e-6 + size * 2 * (ranks - 1) / ranks / (peak * 1e9)
        times[size] = change(size, [base * (1 + 0.01 * ((i * 7) % 5 - 2) / 2) for i in range(20)])
    return problems(judge_sweep.sweep_problems(judge_sweep.table(times, ranks), 431.0))


LOADED = {
    "cudart": ["/site/nvidia/cuda_runtime/lib/libcudart.so.12"],
    "cudnn": ["/site/nvidia/cudnn/lib/libcudnn.so.9", "/site/nvidia/cudnn/lib/libcudnn_ops.so.9"],
    "nccl": ["/site/nvidia/nccl/lib/libnccl.so.2"],
}
VERSIONS = {"cudart": "12.4", "cudnn": "9.1.0", "nccl": "2.21.5"}
DECLARED = {"cudart": "12.4", "cudnn": "9.1.0.70", "nccl": "2.21.5"}


def loaded(paths: dict[str, list[str]] | None = None, versions: dict[str, str] | None = None) -> list[Found]:
    found, _ = judge_versions.loaded_problems({**LOADED, **(paths or {})}, {**VERSIONS, **(versions or {})}, DECLARED)
    return found


def driver(wheel: str, version: str, driver_cuda: str, **more: Any) -> list[Found]:
    path = judge_versions.driver_path(wheel, version, driver_cuda, driver_tables(), **more)
    return [(path.why, path.hint or "")] if path.path == "fail" else []


def not_covered(capability: str, code: list[str]) -> list[Found]:
    how, _ = judge_versions.coverage(capability, code)
    return [(f"{capability}: {how}", hint_for("no kernel image is available") or "")] if how == "none" else []


def requirement(text: str, **facts: str) -> list[Found]:
    answer, _ = judge_versions.require(text, facts)
    return [("does not hold", "older CUDA, or a newer driver")] if answer is False else []


def cdi(**changes: Any) -> list[Found]:
    spec = (DATA / "h200-cdi-nvidia-ctk.yaml").read_text()
    existing = dict.fromkeys(judge_host.cdi_paths(spec), True)
    existing.update(changes.get("existing", {}))
    return problems(judge_host.cdi_problems(changes.get("spec", spec), changes.get("driver"), existing))


def wrong_sum() -> list[Found]:
    right = compare(2, {"all_reduce": [3.0 * (i % 7 + 1) for i in range(1024)]})
    wrong = compare(2, {"all_reduce": [*[3.0 * (i % 7 + 1) for i in range(1023)], 4.0]})
    outcome = exact_outcome([{"results": right}, {"results": wrong}], 2, "nccl")
    return [(str(outcome.reason), str(outcome.hint))] if outcome.status == "fail" else []


def nan_sum() -> list[Found]:
    answer = {"results": compare(1, {"broadcast": [float("nan"), *contribution(0)[1:]]})}
    outcome = exact_outcome([answer], 1, "nccl")
    return [(str(outcome.reason), str(outcome.hint))] if outcome.status == "fail" else []


def one(problem: judge_host.Problem | None) -> list[Found]:
    return problems([problem]) if problem else []


def slow_fall(i: int, row: dict[str, Any]) -> dict[str, Any]:
    if row["t"] > 8:
        row["sm"] = int(row["sm"] * 0.75)
    return row


JUDGED = [
    Fault(
        "shm-tiny",
        "Docker's default of 64 MiB",
        "host.shm",
        lambda: one(judge_host.shm_problem(64 * MIB, 64 * MIB, True, GIB)),
        "64 MiB",
        "--shm-size",
    ),
    Fault(
        "shm-full",
        "shared memory full",
        "host.shm",
        lambda: one(judge_host.shm_problem(GIB, MIB, True, GIB)),
        "free",
        "other processes",
    ),
    Fault(
        "shm-read-only",
        "/dev/shm read-only",
        "host.shm",
        lambda: one(judge_host.shm_problem(GIB, GIB, False, GIB, "Read-only file system")),
        "cannot be written",
        "--shm-size",
    ),
    Fault(
        "clock-1970",
        "clock after a dead battery",
        "host.clock",
        lambda: [(p, "") for p in [clock_problem(86400.0, 1.0, 0.0)] if p],
        "1970",
        "",
    ),
    Fault(
        "clock-fast",
        "wall clock runs wild",
        "host.clock",
        lambda: [(p, "") for p in [clock_problem(1.8e9, 2.0, 0.0)] if p],
        "rate",
        "",
    ),
    Fault(
        "one-cpu-slice",
        "a tenth of a CPU",
        "host.limits",
        lambda: problems(judge_host.limit_problems({"cpus": 0.1}, {})[0]),
        "0.1 CPUs",
        "--cpus",
    ),
    Fault(
        "memory-limit",
        "1 GiB for training",
        "host.limits",
        lambda: problems(judge_host.limit_problems({"cpus": 8, "memory_bytes": GIB}, {"min_memory_gib": 4})[0]),
        "1.0 GiB",
        "--memory",
    ),
    Fault(
        "driver-old",
        "wheel_cuda 13.0 on driver 550",
        "host.driver",
        lambda: driver("13.0", "550.54.14", "12.4"),
        "older than 580",
        "older wheel_cuda",
    ),
    Fault(
        "compat-geforce",
        "cuda-compat on a GeForce",
        "host.driver",
        lambda: driver("12.4", "470.82.01", "12.4", forward=True, data_centre=False),
        "does not support forward",
        "804",
    ),
    Fault(
        "require-unmet",
        "NVIDIA_REQUIRE_CUDA of a newer image",
        "host.require",
        lambda: requirement(
            "cuda>=13.0 brand=tesla,driver>=535,driver<536", cuda="12.4", driver="550.54", brand="geforce"
        ),
        "not hold",
        "newer driver",
    ),
    Fault(
        "cdi-stale",
        "driver upgraded after the CDI file",
        "host.cdi",
        lambda: cdi(driver="590.44.01"),
        "590.44.01",
        "nvidia-ctk cdi generate",
    ),
    Fault(
        "cdi-gone",
        "device node gone",
        "host.cdi",
        lambda: cdi(existing={"/dev/nvidia0": False}),
        "/dev/nvidia0",
        "nvidia-ctk cdi generate",
    ),
    Fault(
        "cdi-empty",
        "CDI file without a GPU",
        "host.cdi",
        lambda: cdi(spec="cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices: []\n"),
        "no GPU device node",
        "load the driver",
    ),
    Fault(
        "relabelled",
        "an A10 sold as H200",
        "card.identity",
        lambda: identity(pci_device_id="2236"),
        "PCI id 2236",
        "return the server",
    ),
    Fault(
        "renamed",
        "NVML name patched",
        "card.identity",
        lambda: identity(cuda_name="NVIDIA A10"),
        "CUDA driver",
        "return the server",
    ),
    Fault(
        "modded",
        "RTX 4090 with 48 GB",
        "card.identity",
        lambda: identity(
            name="NVIDIA GeForce RTX 4090",
            cuda_name="NVIDIA GeForce RTX 4090",
            pci_device_id="2684",
            compute_capability="8.9",
            memory_mib=49140,
            sm_count=128,
        ),
        "modded",
        "vendor",
    ),
    Fault("cut-down", "SMs fused off", "card.identity", lambda: identity(sm_count=114), "114 SMs", "return the server"),
    Fault(
        "half-memory",
        "half the memory",
        "card.identity",
        lambda: identity(memory_mib=71000),
        "71000 MiB",
        "return the server",
    ),
    Fault(
        "wrong-cc",
        "another compute capability",
        "card.identity",
        lambda: identity(compute_capability="8.0"),
        "8.0",
        "return the server",
    ),
    Fault(
        "mig",
        "a MIG slice",
        "card.identity",
        lambda: identity(cuda_name="NVIDIA H200 MIG 1g.18gb"),
        "slice",
        "whole card",
    ),
    Fault(
        "not-nvidia",
        "foreign PCI vendor",
        "card.identity",
        lambda: identity(pci_vendor_id="1AF4"),
        "1AF4",
        "return the server",
    ),
    Fault(
        "riser",
        "x1 mining riser",
        "card.link",
        lambda: problems(judge_card.link_problems({**H200, "pcie_width": 1}, by_name("NVIDIA H200"))),
        "x1 of x16",
        "reseat",
    ),
    Fault(
        "power-capped",
        "owner lowered the power limit",
        "card.state",
        lambda: problems(judge_card.held_back_problems({**H200, "power_limit_w": 350.0}, {"thr": 1, "c": 32})),
        "350 W of 700",
        "nvidia-smi -pl",
    ),
    Fault(
        "tenant",
        "another tenant's memory",
        "card.state",
        lambda: problems(judge_card.held_back_problems({**H200, "memory_used_mib": 60000}, {})),
        "60000",
        "another process",
    ),
    Fault(
        "remap-failed",
        "no spare rows left",
        "card.wear",
        lambda: problems(judge_card.wear_problems({"remapped_rows": {"failed": 1}})),
        "remapping failed",
        "return the server",
    ),
    Fault(
        "xid-79",
        "the card fell off the bus",
        "card.wear",
        lambda: problems(judge_card.wear_problems({"xids": [13, 79]})),
        "Xid 79",
        "return the server",
    ),
    Fault(
        "ecc",
        "uncorrectable errors",
        "card.wear",
        lambda: problems(judge_card.wear_problems({"ecc_uncorrected_volatile": 3})),
        "3 uncorrectable",
        "return the server",
    ),
    Fault(
        "sm-missing",
        "cu124 wheel on a 5090",
        "triangle.sm",
        lambda: not_covered("12.0", ["sm_50", "sm_80", "sm_86", "sm_90"]),
        "none",
        "newer",
    ),
    Fault(
        "sm-90a",
        "only sm_90a on compute capability 10.0",
        "triangle.sm",
        lambda: not_covered("10.0", ["sm_90a"]),
        "none",
        "newer",
    ),
    Fault(
        "cudnn-older",
        "an older cuDNN found first",
        "triangle.loaded",
        lambda: loaded(versions={"cudnn": "9.0.0"}),
        "older than the 9.1.0.70",
        "take other copies off",
    ),
    Fault(
        "cudnn-mixed",
        "cuDNN from two folders",
        "triangle.loaded",
        lambda: loaded({"cudnn": ["/usr/lib/libcudnn.so.9", "/site/nvidia/cudnn/lib/libcudnn_ops.so.9"]}),
        "2 folders",
        "one cuDNN",
    ),
    Fault(
        "two-cudart",
        "two CUDA runtimes in a process",
        "triangle.loaded",
        lambda: loaded({"cudart": ["/usr/local/cuda/lib64/libcudart.so.11.0", "/site/lib/libcudart.so.12"]}),
        "mapped 2 times",
        "leave one",
    ),
    Fault(
        "nccl-major",
        "another NCCL major",
        "triangle.loaded",
        lambda: loaded(versions={"nccl": "3.0.0"}),
        "another major",
        "same major",
    ),
    Fault(
        "curve-idle",
        "work does not reach the GPU",
        "mon.curve",
        lambda: judged(lambda i, r: {**r, "util": r["util"] * 0.6}),
        "busy 5",
        "host.limits",
    ),
    Fault(
        "curve-thermal",
        "thermal slowdown",
        "mon.curve",
        lambda: judged(lambda i, r: {**r, "thr": r["thr"] | (0x20 if i % 3 == 0 else 0)}),
        "sw_thermal_slowdown",
        "cooling",
    ),
    Fault(
        "curve-brake",
        "power brake",
        "mon.curve",
        lambda: judged(lambda i, r: {**r, "thr": 0x88}),
        "hw_power_brake",
        "power supply",
    ),
    Fault(
        "curve-sag", "clock falls while it works", "mon.curve", lambda: judged(slow_fall), "fell from", "does not last"
    ),
    Fault(
        "curve-locked",
        "clock locked low",
        "mon.curve",
        lambda: judged(lambda i, r: {**r, "sm": 1200, "thr": 0, "w": 380.0}),
        "power to spare",
        "-rgc",
    ),
    Fault(
        "out-of-step",
        "one slow GPU of four",
        "mon.step",
        lambda: problems(
            judge_curve.step_problems(
                {
                    g: [{**r, "sm": 900 if g == 2 else r["sm"]} for r in judge_curve.cut(curve(), 2.4, 14.4)]
                    for g in range(4)
                }
            )
        ),
        "GPU 2",
        "another server",
    ),
    Fault(
        "busbw-low",
        "shared memory instead of NVLink",
        "dist.busbw",
        lambda: sweep(lambda s, t: t, peak=24.0),
        "431 is the floor",
        "NCCL_DEBUG",
    ),
    Fault(
        "busbw-noisy",
        "a noisy neighbour",
        "dist.busbw",
        lambda: sweep(lambda s, t: [v * (1 + 0.5 * (i % 2)) for i, v in enumerate(t)]),
        "scatter",
        "another tenant",
    ),
    Fault(
        "busbw-collapse",
        "plateau collapses at 256 MiB",
        "dist.busbw",
        lambda: sweep(lambda s, t: [v * (3 if s >= 256 * MIB else 1) for v in t]),
        "collapses",
        "Xid",
    ),
    Fault(
        "busbw-tail",
        "rare slow iterations",
        "dist.busbw",
        lambda: sweep(lambda s, t: [*t[:-1], t[-1] * 4]),
        "p99",
        "retrains",
    ),
    Fault(
        "slow-pair",
        "a missing NVLink",
        "dist.busbw",
        lambda: problems(judge_sweep.pair_problems({"0-1": 300.0, "0-2": 298.0, "1-2": 40.0, "0-3": 301.0})),
        "1-2",
        "topo -m",
    ),
    Fault("wrong-sum", "all_reduce off by one", "dist.init", wrong_sum, "rank 1", "P2P"),
    Fault("nan-sum", "NaN out of broadcast", "dist.init", nan_sum, "broadcast", "NCCL_P2P_DISABLE"),
]


@pytest.mark.parametrize("row", JUDGED, ids=lambda row: row.id)
def test_judged_fault_is_caught(row: Fault) -> None:
    found = row.plant()
    assert found, f"{row.fault}: nothing was said"
    assert any(row.reason in what and row.hint in fix for what, fix in found), found


def test_the_healthy_pass() -> None:
    """The same rules say nothing about healthy facts: the recorded curve with its power cap and clock 26 % down."""
    assert identity() == []
    assert judged() == []
    assert loaded() == []
    assert sweep(lambda s, t: t) == []
    assert problems(judge_card.held_back_problems(H200, {"thr": 1, "c": 32})) == []
    assert problems(judge_card.link_problems(H200, by_name("NVIDIA H200"))) == []
    assert driver("13.0", "580.159.04", "13.0") == []
    assert cdi(driver=None) == []
    right = compare(2, {"all_reduce": [3.0 * (i % 7 + 1) for i in range(1024)]})
    assert exact_outcome([{"results": right}] * 2, 2, "gloo").status == "pass"


# --- process faults, through the runner ---------------------------------------------------------------------------

PROCESS = {
    "fault.hang": ("fail", "no answer within", "hung"),
    "fault.segfault": ("fail", "SIGSEGV", "two versions of one library"),
    "fault.abort": ("fail", "SIGABRT", "last words"),
    "fault.busError": ("fail", "SIGBUS", "--shm-size"),
    "fault.memory": ("fail", "memory limit", "--memory"),
    "fault.killed": ("fail", "SIGKILL", "memory"),
    "fault.forgedPrint": ("fail", "the real answer", ""),
    "fault.forgedChannel": ("fail", "not ours", "do not trust"),
    "fault.zombie": ("pass", "dead children", "--init"),
    "fault.orphan": ("fail", "sleep", "join them"),
    "fault.forkBomb": ("fail", "without end", "output"),
    "fault.silentExit": ("fail", "no result", "last words"),
    "fault.numpyAbi": ("fail", "NumPy 1.x", "numpy<2"),
    "fault.missingLibrary": ("error", "libcudnn_of_nobody.so.9", "not in the image"),
    "fault.noKernel": ("error", "no kernel image", "triangle.sm"),
    "fault.notANumber": ("fail", "NaN", ""),
    "fault.flood": ("pass", "", ""),
    "fault.stdoutClosed": ("error", "ValueError: and says why all the same", ""),
}
"""Fault of suite_harness.py → (status, piece of the reason, piece of the hint)."""


@pytest.fixture(scope="module")
def lines() -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(HERE / "suite_harness.py")], capture_output=True, timeout=120, check=True, text=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_every_process_fault_is_in_the_table(lines: dict[str, Any]) -> None:
    assert set(lines) - {"children"} == set(PROCESS)


@pytest.mark.parametrize("fault", sorted(PROCESS))
def test_process_fault_is_caught(lines: dict[str, Any], fault: str) -> None:
    status, reason, hint = PROCESS[fault]
    line = lines[fault]
    assert line["status"] == status, line
    assert reason in str(line["reason"]), line
    assert hint in str(line["hint"]), line


def test_nothing_is_left_behind(lines: dict[str, Any]) -> None:
    assert lines["children"]["alive"] == []
    assert lines["fault.zombie"]["zombies_reaped"] == 3
    assert lines["fault.forgedChannel"]["measured"]["forged_lines"] >= 1
    assert lines["fault.notANumber"]["measured"] == {"error": "nan", "largest": "inf"}


# --- faults of the environment, through the real check ------------------------------------------------------------


def suite(*argv: str, env: dict[str, str] | None = None) -> tuple[int, list[dict[str, Any]]]:
    full = {k: v for k, v in os.environ.items() if not k.startswith(("LC_", "LANG", "PYTHONIOENCODING"))}
    done = subprocess.run(
        [sys.executable, "-m", "gpuimg.suite", "--profile", "full", "--device", "cpu", "--json", *argv],
        capture_output=True,
        env={**full, **(env or {})},
        cwd=str(ROOT),
        timeout=120,
        check=False,
    )
    return done.returncode, [json.loads(line) for line in done.stdout.decode("utf-8").splitlines()]


@pytest.mark.parametrize(
    ("env", "status", "reason", "hint"),
    [
        ({"LC_ALL": "C"}, "fail", "not UTF-8", "LANG=C.UTF-8"),
        ({}, "fail", "not UTF-8", "LANG=C.UTF-8"),
        ({"LC_ALL": "tlh_QO.UTF-8"}, "fail", "not installed", "C.UTF-8"),
        ({"LANG": "C.UTF-8", "PYTHONIOENCODING": "ascii"}, "fail", "do not survive stdio", "PYTHONIOENCODING"),
        ({"LANG": "C.UTF-8"}, "pass", "", ""),
    ],
    ids=["POSIX", "no LANG", "missing locale", "ASCII stdio", "healthy"],
)
def test_locale(env: dict[str, str], status: str, reason: str, hint: str) -> None:
    _, found = suite("--only", "host.locale", env=env)
    line = found[1]
    assert line["status"] == status, line
    assert reason in str(line["reason"]) or not reason
    assert hint in str(line["hint"]) or not hint


@pytest.mark.parametrize(
    ("command", "status", "reason"),
    [
        ("true", "pass", ""),
        ("echo 'A module that was compiled using NumPy 1.x cannot be run in NumPy 2' >&2", "fail", "NumPy 1.x"),
        ("python3 -c 'import nothing_of_that_name'", "fail", "exit status 1"),
        ("kill -SEGV $$", "fail", "SIGSEGV"),
        ("sleep 60", "fail", "no answer"),
    ],
)
def test_a_users_own_command(command: str, status: str, reason: str) -> None:
    code, found = suite("--only", "host.clock", "--run", command, "--run-timeout", "0.5")
    line = next(row for row in found if row.get("id") == "user.run")
    assert line["status"] == status, line
    assert reason in str(line["reason"])
    assert code == (0 if status == "pass" else 1)
