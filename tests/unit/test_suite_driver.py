"""The suite's ctypes code against stand-ins for libcuda and NVML, and faults planted in those.

What a real card answers is in the recorded fixtures; here every call's arguments, structures and error path are run.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpuimg.suite.document import read_document

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "tests/data/suite/fake_driver.c"
COMPILER = shutil.which("cc") or shutil.which("gcc")

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C compiler to build the stand-in driver with")


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("driver")
    for name, flags in (("libcuda.so.1", ["-DFAKE_CUDA"]), ("libnvidia-ml.so.1", [])):
        command = [str(COMPILER), "-shared", "-fPIC", "-w", *flags, "-o", str(folder / name), str(SOURCE)]
        subprocess.run(command, check=True)
    return folder


def run(driver: Path, *argv: str, **variables: str) -> tuple[int, dict[str, dict[str, Any]], dict[str, Any]]:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("FAKE_", "NVIDIA_", "CUDA_"))}
    env.update(LD_LIBRARY_PATH=str(driver), **variables)
    done = subprocess.run(
        [sys.executable, "-m", "gpuimg.suite", "--profile", "full", "--json", *argv],
        capture_output=True,
        cwd=str(ROOT),
        env=env,
        timeout=120,
        check=False,
    )
    read = read_document(done.stdout.decode("utf-8"))
    return done.returncode, {c["id"]: c for c in read.checks}, read.environment


DRIVER = ("--only", "driver.*", "--only", "card.*")


def test_a_sound_card(driver: Path) -> None:
    code, checks, environment = run(driver, *DRIVER)
    assert {k: (c["status"], c["reason"]) for k, c in checks.items()} == dict.fromkeys(
        ["card.identity", "card.link", "card.state", "card.wear", "driver.init", "driver.ptx"], ("pass", None)
    )
    assert code == 0
    gpu = environment["gpus"][0]
    assert (gpu["name"], gpu["pci_device_id"], gpu["sm_count"]) == ("NVIDIA H200", "2335", 132)
    assert (gpu["compute_capability"], gpu["memory_mib"], gpu["power_limit_w"]) == ("9.0", 143771, 700.0)
    assert (environment["driver"], environment["driver_cuda"]) == ("580.159.04", "13.0")


def test_hidden_and_many_gpus(driver: Path) -> None:
    _, checks, environment = run(driver, "--only", "driver.init", FAKE_DEVICES="4", FAKE_CUDA_DEVICES="2")
    assert len(environment["gpus"]) == 2
    assert environment["hidden_gpus"] == 2
    assert checks["driver.init"]["measured"]["devices"] == 2


FAULTS = [
        ({"FAKE_CUINIT": "802"}, "driver.init", "802", "fabricmanager"),
        ({"FAKE_CUINIT": "803"}, "driver.init", "803", "nvidia-ctk cdi generate"),
        ({"FAKE_CUINIT": "804"}, "driver.init", "804", "compat"),
        ({"FAKE_CUINIT": "999"}, "driver.init", "999", "nvidia-uvm"),
        ({"FAKE_CUINIT": "100"}, "driver.init", "100", "--gpus all"),
        ({"FAKE_CONTEXT": "46"}, "driver.init", "46", "exclusively"),
        ({"FAKE_BITFLIP": "1"}, "driver.init", "1 of 8388608 bytes", "return the server"),
        ({"FAKE_PTX": "222"}, "driver.ptx", "222", "newer driver"),
        ({"FAKE_NAME": "NVIDIA L4", "FAKE_CUDA_NAME": "NVIDIA L4"}, "card.identity", "2335", "return"),
        ({"FAKE_MEMORY_MIB": "71000"}, "card.identity", "71000", "return the server"),
        ({"FAKE_SMS": "114"}, "card.identity", "114 SMs", "return the server"),
        ({"FAKE_CUDA_NAME": "NVIDIA H200 MIG 1g.18gb"}, "card.identity", "slice", "whole card"),
        ({"FAKE_WIDTH": "4"}, "card.link", "x4 of x16", "reseat"),
        ({"FAKE_LIMIT_W": "400"}, "card.state", "400 W", "nvidia-smi -pl"),
        ({"FAKE_USED_MIB": "90000"}, "card.state", "90000", "another process"),
        ({"FAKE_REASONS": "64"}, "card.state", "hw_thermal_slowdown", "heat"),
        ({"FAKE_UNCORRECTED": "2"}, "card.wear", "2 uncorrectable", "return the server"),
        ({"FAKE_REMAP_FAILED": "1"}, "card.wear", "remapping failed", "return the server"),
]  # fmt: skip
"""(planted variables, check that must catch it, piece of its reason, piece of its hint)."""

PROGRAM = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
from gpuimg.suite.profiles import Profile
from gpuimg.suite.registry import all_checks
from gpuimg.suite.runner import Options, Run
checks = all_checks()
lines = []
for variables, check in json.load(sys.stdin):
    os.environ.update(variables)
    run = Run(Options(Profile("t", "t", 60, ("*",), ()), "t"))
    run.probe()
    lines.append(run.run_check(checks[check], True))
    for name in variables:
        del os.environ[name]
print(json.dumps(lines))
"""


@pytest.fixture(scope="module")
def planted(driver: Path) -> list[dict[str, Any]]:
    """Every fault through the real runner, in one process (each check is forked and loads the libraries anew)."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(ROOT)],
        input=json.dumps([row[:2] for row in FAULTS]).encode(),
        env={**os.environ, "LD_LIBRARY_PATH": str(driver)},
        capture_output=True,
        timeout=120,
        check=True,
    )
    lines: list[dict[str, Any]] = json.loads(done.stdout)
    return lines


@pytest.mark.parametrize("number", range(len(FAULTS)), ids=[f"{row[1]}-{'-'.join(row[0])}" for row in FAULTS])
def test_planted_driver_faults(planted: list[dict[str, Any]], number: int) -> None:
    variables, check, reason, hint = FAULTS[number]
    line = planted[number]
    assert (line["id"], line["status"]) == (check, "fail"), (variables, line)
    assert reason in line["reason"], line
    assert hint in line["hint"], line


def test_unknown_cards_are_not_passed(driver: Path) -> None:
    code, checks, _ = run(
        driver, "--only", "card.identity", FAKE_NAME="NVIDIA Z9", FAKE_CUDA_NAME="NVIDIA Z9", FAKE_PCI="000110DE"
    )
    assert checks["card.identity"]["status"] == "skip"
    assert "does not know NVIDIA Z9" in checks["card.identity"]["reason"]
    assert code == 3


def test_nvml_without_driver(driver: Path) -> None:
    """NVML refuses, libcuda works: facts come from libcuda, NVML's checks are skipped and say so."""
    _, checks, environment = run(driver, "--only", "driver.init", "--only", "card.wear", FAKE_NVML="9")
    assert environment["gpu_source"] == "libcuda"
    assert checks["driver.init"]["status"] == "pass"
    assert checks["card.wear"]["status"] == "skip"
    assert "Driver Not Loaded" in checks["card.wear"]["reason"]


def test_the_sampler_and_the_curve(driver: Path, tmp_path: Path) -> None:
    """The background sampler writes while the run goes on, and mon.curve judges a stretch of it."""
    program = f"""
import json, os, sys, time
sys.path.insert(0, {str(ROOT)!r})
path = sys.argv[1]
from gpuimg.suite.sampler import Sampler, read_samples
from gpuimg.suite.checks_mon import mon_curve
from gpuimg.suite.registry import Context
from pathlib import Path
start = time.time()
sampler = Sampler(path, period=0.05)
time.sleep(2.6)
sampler.stop()
window = {{"check": "x", "label": "matmul", "start": start, "end": time.time(), "gpus": None}}
ctx = Context("mon.curve", "full", {{}}, None, "cuda", Path("."), "n", time.monotonic() + 9,
              facts={{"gpus": [{{"index": 0, "power_limit_w": 700.0, "sm_clock_max_mhz": 1980}}]}},
              options={{"windows": [window]}}, samples=sampler.path)
out = mon_curve(ctx)
print(json.dumps([out.status, out.reason, out.measured["stretches"], len(out.measured["curve"])]))
"""
    cases: list[tuple[dict[str, str], str, str]] = [
        ({}, "pass", ""),
        ({"FAKE_UTIL": "40"}, "fail", "busy 40 %"),
        ({"FAKE_REASONS": "8"}, "fail", "hw_slowdown"),
    ]
    started = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path / f"{i}.jsonl")],
            env={**os.environ, "LD_LIBRARY_PATH": str(driver), **case[0]},
            stdout=subprocess.PIPE,
        )
        for i, case in enumerate(cases)
    ]
    for process, (_, status, reason) in zip(started, cases, strict=True):
        found = json.loads(process.communicate(timeout=60)[0])
        assert found[0] == status
        assert reason in str(found[1])
        assert found[2][0]["power_w"]["median"] == 691.0
        assert found[3] > 30
