"""Every form in which people paste a server's facts, whole, cut off, and mixed."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuimg.host import parse_host
from gpuimg.host.detect import verdict_of

FORMS = Path(__file__).parent.parent / "data" / "host"
TABLE_550 = """\
user@box:~$ nvidia-smi
Fri Jan 10 12:00:00 2025
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 550.120                Driver Version: 550.120        CUDA Version: 12.4     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
|   0  NVIDIA A100-SXM4-80GB          On  |   00000000:07:00.0 Off |                    2 |
| N/A   30C    P0             60W /  400W |       0MiB /  81920MiB |      0%      Default |
|                                         |                        |              Enabled |
+-----------------------------------------+------------------------+----------------------+
"""
TRUNCATED_NAME = """\
| NVIDIA-SMI 515.65.01    Driver Version: 515.65.01    CUDA Version: 11.7     |
|   0  NVIDIA GeForce ...  Off  | 00000000:01:00.0 Off |                  N/A |
| 30%   40C    P8    20W / 170W |      1MiB / 12288MiB |      0%      Default |
"""


def test_table() -> None:
    host = parse_host(TABLE_550)
    assert (host.driver, host.driver_cuda) == ("550.120", "12.4")
    (gpu,) = host.gpus
    assert (gpu.name, gpu.compute_capability, gpu.memory_mib, gpu.mig) == ("NVIDIA A100-SXM4-80GB", "8.0", 81920, True)
    assert {f.rule for f in host.findings if f.severity == "fail"} == {"ecc"}
    assert verdict_of(host.findings, host) == "fail"


def test_cut_off_name_is_told_by_memory_and_power() -> None:
    (gpu,) = parse_host(TRUNCATED_NAME).gpus
    assert gpu.compute_capability == "8.6"


def test_chinese_page_keeps_the_cuda_versions_apart() -> None:
    host = parse_host(
        "GPU型号：RTX 4090 * 2\n显存：24GB\n驱动版本：550.90.07\n最高支持CUDA 12.4\n镜像：PyTorch 2.1.0 Python 3.10 (ubuntu22.04) CUDA 11.8"
    )
    assert len(host.gpus) == 2
    assert (host.driver, host.driver_cuda, host.toolkit) == ("550.90.07", "12.4", "11.8")
    assert host.frameworks[0].name == "torch"
    assert (host.os, host.python) == ("ubuntu22.04", "3.10")


def test_page_without_a_driver_asks_for_it() -> None:
    host = parse_host("8x H100 SXM, 80GB VRAM, image: PyTorch 2.4 CUDA 12.4, $2.49/hr")
    assert len(host.gpus) == 8
    assert "driver" in host.missing
    assert host.driver_cuda is None
    assert any(f.severity == "ask" for f in host.findings)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (
            "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 550.120",
            "driver-mismatch",
        ),
        ("No devices were found", "no-devices"),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", "driver-not-loaded"),
        ("bash: nvidia-smi: command not found", "no-smi"),
        ("Failed to initialize NVML: Unknown Error", "nvml-unknown"),
        ("[ 12.3] NVRM: Xid (PCI:0000:41:00): 79, pid=1, GPU has fallen off the bus.", "xid"),
        ("NVRM: GPU 0000:41:00.0: GPU has fallen off the bus.", "off-the-bus"),
        ("Unable to determine the device handle for GPU 0000:41:00.0: Unknown Error", "gpu-lost"),
    ],
)
def test_failures_are_recognised(text: str, rule: str) -> None:
    host = parse_host(text)
    assert rule in {f.rule for f in host.findings if f.severity == "fail"}


def test_a_programs_fault_is_no_fault_of_the_card() -> None:
    host = parse_host("NVRM: Xid (PCI:0000:41:00): 31, pid=77, name=python, MMU Fault")
    assert [f.severity for f in host.findings] == ["warn"]


def test_idle_link_and_power_cap_are_healthy() -> None:
    text = (
        "name, driver_version, pstate, pcie.link.gen.current, pcie.link.gen.max, clocks_event_reasons.active\n"
        "NVIDIA GeForce RTX 3090, 550.54.14, P8, 1, 4, 0x0000000000000004\n"
    )
    host = parse_host(text)
    assert host.gpus[0].details["throttle"] == ["sw power cap"]
    assert {f.severity for f in host.findings} <= {"ok"}


def test_nothing_usable_is_unknown() -> None:
    host = parse_host("hello world")
    assert verdict_of(host.findings, host) == "unknown"
    assert host.missing == ("gpu", "driver")


FIXTURES = sorted(FORMS.glob("*")) if FORMS.is_dir() else []


@pytest.mark.parametrize("path", FIXTURES, ids=lambda p: p.name)
def test_recorded_forms_name_the_card(path: Path) -> None:
    host = parse_host(path.read_text(encoding="utf-8"))
    if "topo" not in path.name:
        assert host.gpus[0].compute_capability == "9.0"
    assert not [f for f in host.findings if f.severity == "fail"]


@given(st.text())
def test_any_text_gives_a_host(text: str) -> None:
    parse_host(text)


@settings(max_examples=150, deadline=None)
@given(st.randoms(), st.sampled_from([p.name for p in FIXTURES] or ["none"]))
def test_damaged_pastes_give_a_host(rand: random.Random, name: str) -> None:
    text = (FORMS / name).read_text(encoding="utf-8") if name != "none" else TABLE_550
    cut = (
        text[rand.randrange(len(text)) : rand.randrange(len(text))]
        if rand.random() < 0.5
        else text[: rand.randrange(len(text))]
    )
    letters = list(cut)
    for _ in range(rand.randrange(6)):
        if letters:
            letters[rand.randrange(len(letters))] = rand.choice("|:<>0 \n%")
    parse_host("".join(letters))
