"""What nvidia-smi and its kin say instead of an answer."""

from __future__ import annotations

import re

from gpuimg.host.readings import Readings
from gpuimg.nouns import HostFinding

_FAILURES = (
    (
        r"Driver/library version mismatch",
        "driver-mismatch",
        "NVML: the user-space driver and the loaded kernel module are of different versions (an update without a reboot)",
        "reboot; or unload and reload the nvidia kernel modules (rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia)",
    ),
    (
        r"couldn't communicate with the NVIDIA driver|could not communicate with the NVIDIA driver",
        "driver-not-loaded",
        "nvidia-smi cannot reach the kernel driver: the module is not loaded",
        "modprobe nvidia; after a kernel update rebuild it (dkms autoinstall) and reboot; check Secure Boot and dmesg",
    ),
    (
        r"No devices were found",
        "no-devices",
        "the driver is there, but drives no card",
        "see dmesg: the open modules refuse pre-Turing cards, the proprietary ones refuse Blackwell; "
        "check lspci, power and that the card was passed through",
    ),
    (
        r"nvidia-smi(?:\.exe)?['\"]?:? (?:command )?not found|nvidia-smi ?[:：] ?未找到命令|command not found: nvidia-smi|"
        r"nvidia-smi.{0,40}(?:No such file|找不到)|无法将.nvidia-smi.项识别|not recognized as an internal or external command.*|"
        r"executable file not found in \$PATH.*nvidia-smi|\"nvidia-smi\": executable file not found",
        "no-smi",
        "there is no nvidia-smi: no driver on this host, or a container without GPU access",
        "on a host: install the driver; in a container: start it with --gpus all or a CDI device",
    ),
    (
        r"Failed to initialize NVML: Unknown Error",
        "nvml-unknown",
        "NVML: Unknown Error: a running container lost its devices (systemd daemon-reload with cgroup v2), or no permission",
        "restart the container; use CDI, or set no-cgroups / cgroupfs as the toolkit's notes say",
    ),
    (
        r"Failed to initialize NVML: Insufficient Permissions",
        "nvml-permission",
        "NVML: no permission on /dev/nvidia*",
        "check the device nodes' mode and groups, or the container's device rules",
    ),
    (
        r"GPU access blocked by the operating system",
        "wsl-blocked",
        "NVML: GPU access blocked by the operating system: WSL without a fitting Windows driver",
        "update Windows and its NVIDIA driver; wsl --update, wsl --shutdown",
    ),
    (
        r"couldn't find libnvidia-ml|NVML Shared Library Not Found|Failed to initialize NVML: ERROR_LIBRARY_NOT_FOUND",
        "no-driver-library",
        "libnvidia-ml of the driver is missing: no driver on this host, or a container without GPU access",
        "on a host: install the driver; in a container: start it with --gpus all or a CDI device",
    ),
    (r"Failed to initialize NVML", "nvml-failed", "NVML cannot be initialised", "see dmesg for NVRM lines"),
    (
        r"Unable to determine the device handle for (?:GPU|gpu)[^:]*:? ?[^\n]*",
        "gpu-lost",
        "the driver lost a card (Unable to determine the device handle)",
        "look for Xid 79 in dmesg; power-cycle; exchange the card if it repeats",
    ),
    (
        r"GPU is lost",
        "gpu-lost",
        "the driver lost a card (GPU is lost)",
        "power-cycle; exchange the card if it repeats",
    ),
    (r"Unknown Error\s*\|", "smi-error", "nvidia-smi reads Unknown Error from a card", "see dmesg; reboot"),
)


def read_failures(text: str) -> Readings | None:
    """None when the text holds none of them."""
    out = Readings()
    for pattern, rule, what, fix in _FAILURES:
        if re.search(pattern, text, re.I) and not any(f.rule == rule for f in out.findings):
            if rule == "nvml-failed" and any(
                f.rule.startswith(("nvml", "driver-", "wsl", "no-")) for f in out.findings
            ):
                continue
            out.findings.append(
                HostFinding(rule, "fail", what, fix, "https://docs.nvidia.com/deploy/nvidia-smi/index.html")
            )
    library = re.search(r"NVML library version:\s*([\d.]+)", text)
    if library:
        out.details["nvml_version"] = library.group(1)
    return out if out.findings else None
