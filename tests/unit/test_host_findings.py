"""What is found on servers: each fault where it is, and none where there is none."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuimg.host import parse_host
from gpuimg.host.detect import verdict_of

BANNER = "| NVIDIA-SMI {d}             Driver Version: {d}   CUDA Version: {c}     |\n"


def table(name: str, memory: int, *, driver: str = "580.95.05", cuda: str = "13.0", **cells: str) -> str:
    get = {
        "persist": "On",
        "ecc": "0",
        "mode": "Default",
        "mig": "N/A",
        "power": "20W",
        "cap": "300W",
        "used": "1",
        **cells,
    }
    return (
        BANNER.format(d=driver, c=cuda)
        + f"|   0  {name:<34} {get['persist']:>4} | 00000000:01:00.0 Off | {get['ecc']:>20} |\n"
        + f"| 30%   40C    P0   {get['power']} / {get['cap']}  | {get['used']}MiB / {memory}MiB |      0%   {get['mode']:>10} |\n"
        + f"|                                         |                      | {get['mig']:>20} |\n"
    )


def faults(text: str) -> dict[str, str]:
    return {f.rule: f.severity for f in parse_host(text).findings if f.severity in ("fail", "warn", "ask")}


@pytest.mark.parametrize(
    ("text", "rule", "severity"),
    [
        (table("NVIDIA A100-SXM4-80GB", 81920, ecc="2"), "ecc", "fail"),
        (table("NVIDIA A100-SXM4-80GB", 81920, mode="Prohibited"), "compute-mode", "fail"),
        (table("NVIDIA A100-SXM4-80GB", 81920, mode="E. Process"), "compute-mode", "warn"),
        (table("NVIDIA A100-SXM4-80GB", 81920, mig="Enabled") + "|  No MIG devices found |\n", "mig", "fail"),
        (table("NVIDIA A100-SXM4-80GB", 81920, mig="Enabled"), "mig", "warn"),
        (table("NVIDIA A100-SXM4-80GB", 81920, used="60000"), "memory-in-use", "warn"),
        (table("NVIDIA GeForce RTX 4090", 49140), "memory-size", "warn"),
        (table("NVIDIA GeForce RTX 2080 Ti", 22528), "memory-size", "warn"),
        (table("NVIDIA GeForce RTX 3090", 12288), "memory-size", "warn"),
        (table("GRID A100X-20C", 20480), "sliced", "warn"),
        (table("Tesla V100-SXM2-32GB", 32768, driver="590.44.01", cuda="13.1"), "driver-too-new", "warn"),
        (table("NVIDIA GeForce RTX 5090", 32607, driver="550.54.14", cuda="12.4"), "driver-too-old", "warn"),
        (table("Tesla T4", 15360, driver="470.129.06", cuda="12.3"), "driver-cuda-mismatch", "warn"),
        (table("Tesla T4", 15360, driver="535.104.05", cuda="12.2"), "driver-end-of-life", "warn"),
        (table("NVIDIA RTX 9090", 65536), "unknown-gpu", "ask"),
        (table("NVIDIA A10", 23028, power="ERR!", cap="ERR!"), "smi-error", "fail"),
        (table("NVIDIA A10", 23028, persist="WDDM"), "windows", "warn"),
        (table("NVIDIA A10", 23028, cuda="ERR!"), "driver-cuda-unknown", "warn"),
        (table("NVIDIA A10", 23028) + table("Tesla T4", 15360).replace("|   0", "|   1"), "mixed-gpus", "warn"),
        ("name, temperature.gpu, driver_version\nNVIDIA A10, 94, 580.95.05\n", "temperature", "warn"),
        (
            "name, clocks_throttle_reasons.hw_thermal_slowdown, driver_version\nNVIDIA A10, Active, 580.95.05\n",
            "throttle",
            "warn",
        ),
        ("name, mig.mode.current, mig.mode.pending\nNVIDIA A100-SXM4-80GB, Disabled, Enabled\n", "mig-pending", "warn"),
        ("name, pci.device_id, driver_version\nNVIDIA H200, 0x268410DE, 580.95.05\n", "identity", "fail"),
        ("name, remapped_rows.failure\nNVIDIA A100-SXM4-80GB, Yes\n", "remapped-rows", "fail"),
        ("name, retired_pages.pending\nTesla V100-SXM2-32GB, Yes\n", "retired-pages", "fail"),
        ("GPU: AMD Instinct MI300X 192GB, ROCm 6.2, $2/h", "not-nvidia", "fail"),
        ("显卡：昇腾 910B 64GB 镜像 MindSpore 2.2.0", "not-nvidia", "fail"),
        ("image: pytorch/pytorch:2.4.0-cuda12.4, GPU RTX 4090, $0.4/h", "driver-missing", "ask"),
        ("驱动版本：550.67  CUDA版本：≤12.4  按量 2元/时", "gpu-missing", "ask"),
        ("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.", "no-driver-library", "fail"),
        ("Failed to initialize NVML: GPU access blocked by the operating system", "wsl-blocked", "fail"),
        ("zsh: command not found: nvidia-smi", "no-smi", "fail"),
        ("-bash: nvidia-smi：未找到命令", "no-smi", "fail"),
        ("NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.", "off-the-bus", "fail"),
        ("NVRM: Xid (PCI:0000:3b:00): 31, pid=9, Ch 8, MMU Fault", "xid", "warn"),
        ("NVRM: Xid (PCI:0000:3b:00): 95, pid=9, Uncontained ECC error", "xid", "fail"),
        ("nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 22013, Fatal, Link 44", "sxid", "fail"),
        ("pcieport 0000:00:01.0: AER: Uncorrected (Fatal) error received: 0000:01:00.0", "pcie-aer", "fail"),
    ],
)
def test_fault_is_found(text: str, rule: str, severity: str) -> None:
    assert faults(text).get(rule) == severity, faults(text)


@pytest.mark.parametrize(
    "text",
    [
        table("NVIDIA A100-SXM4-80GB", 81920),
        table("NVIDIA GeForce RTX 4090", 24564, ecc="Off"),
        table("NVIDIA L40S", 46068),
        table("NVIDIA L40S", 49140),
        table("NVIDIA GB10", 0, cap="N/A").replace("1MiB / 0MiB", "Not Supported"),
        "name, clocks_throttle_reasons.active, driver_version\nNVIDIA H200, 0x0000000000000004, 580.95.05\n",
        "index, name, driver_version, pstate, pcie.link.gen.current, pcie.link.gen.max, pcie.link.width.current, "
        "pcie.link.width.max\n0, NVIDIA L4, 580.95.05, P8, 1, 4, 16, 16\n",
        "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tPIX\t0-31\nGPU1\tPIX\t X \t0-31\n",
    ],
)
def test_no_false_alarm(text: str) -> None:
    assert not faults(text)


@pytest.mark.parametrize(
    ("text", "name", "count", "memory", "driver", "driver_cuda", "toolkit"),
    [
        ("镜像 PyTorch  2.1.0 / Python  3.10(ubuntu22.04) / CUDA  12.1\nGPU  RTX 4090(24GB) * 2\n驱动版本：550.67\nCUDA版本：≤12.4\n",
         "RTX 4090", 2, 24576, "550.67", "12.4", "12.1"),
        ("GPU型号: RTX 3090 / 24 GB  驱动: 535.104.05  CUDA≤12.2  可租", "RTX 3090", 1, 24576, "535.104.05", "12.2", None),
        ("显卡：NVIDIA A100 80GB PCIe x 2\n显卡驱动：525.105.17", "NVIDIA A100 80GB", 2, None, "525.105.17", "12.0", None),
        ("4x RTX 5090  Max CUDA: 13.0\n$1.60/hr  PCIE 5.0,16x  Driver 580.95.05", "RTX 5090", 4, None, "580.95.05", "13.0", None),
        ("1x H100 SXM  80 GB VRAM image runpod/pytorch:2.4.0-py3.11-cuda12.4.1", "H100", 1, 81920, None, None, "12.4"),
    ],
)  # fmt: skip
def test_provider_pages(
    text: str,
    name: str,
    count: int,
    memory: int | None,
    driver: str | None,
    driver_cuda: str | None,
    toolkit: str | None,
) -> None:
    host = parse_host(text)
    assert [gpu.name for gpu in host.gpus] == [name] * count
    assert host.gpus[0].memory_mib == memory
    assert (host.driver, host.driver_cuda, host.toolkit) == (driver, driver_cuda, toolkit)


def test_table_copied_without_its_lines() -> None:
    host = parse_host(
        "NVIDIA-SMI 580.95.05 Driver Version: 580.95.05 CUDA Version: 13.0\n"
        "GPU Name Persistence-M Bus-Id Disp.A Volatile Uncorr. ECC\n"
        "0 NVIDIA A100-SXM4-80GB On 00000000:07:00.0 Off 0\nN/A 30C P0 60W / 400W 0MiB / 81920MiB 0% Default\n"
    )
    (gpu,) = host.gpus
    assert (gpu.name, gpu.memory_mib, gpu.details["power_limit_w"]) == ("NVIDIA A100-SXM4-80GB", 81920, 400)
    assert verdict_of(host.findings, host) == "ok"


PIECES = st.sampled_from(
    [
        table("NVIDIA A100-SXM4-80GB", 81920),
        "<nvidia_smi_log><driver_version>580.1</driver_version><gpu id='0'><product_name>NVIDIA H200</product_name>",
        "==============NVSMI LOG==============\nDriver Version : 580.95.05\nGPU 00000000:01:00.0\n    Product Name : X\n",
        "GPU 0: NVIDIA L4 (UUID: GPU-0)\n",
        "index, name, memory.total [MiB]\n0, NVIDIA L4, 23034 MiB\n",
        "NVRM: Xid (PCI:0000:3b:00): 79, x\n",
        "\tGPU0\tGPU1\nGPU0\t X \tNV12\nGPU1\tNV12\t X \n",
        "PyTorch version: 2.6.0+cu124\nNvidia driver version: 550.54\n",
        "显卡：RTX 4090 * 2 驱动 550.67\n",
        '{"gpus": [{"name": "NVIDIA L4", "memory_mib": "x"}]}',
        "\x1b[31m|\x00\ufeff",
    ]
)


@settings(max_examples=150, deadline=None)
@given(st.lists(PIECES, min_size=1, max_size=4), st.integers(0, 400), st.integers(0, 400), st.text(max_size=20))
def test_mangled_pastes_never_break_it(pieces: list[str], start: int, end: int, noise: str) -> None:
    text = "".join(pieces)
    mangled = text[start : len(text) - end] + noise + text[:end]
    host = parse_host(mangled)
    json.dumps([gpu.to_json() for gpu in host.gpus] + [finding.to_json() for finding in host.findings], default=str)
    assert verdict_of(host.findings, host) in {"ok", "warn", "fail", "unknown"}


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes(data: bytes) -> None:
    host = parse_host(data.decode("utf-8", "replace"))
    assert verdict_of(host.findings, host) in {"ok", "warn", "fail", "unknown"}
