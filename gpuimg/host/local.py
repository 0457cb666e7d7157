"""This machine: its driver asked through nvidia-smi (or NVML), its engine and system through the usual files."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

from gpuimg.host.detect import host_of, parse_host
from gpuimg.host.nvml import read_nvml
from gpuimg.host.setup import read_setup
from gpuimg.nouns import Host, HostFinding


def read_here() -> Host:
    """Facts of the machine this runs on; a machine without a GPU gives a host without one, with the reason."""
    text = _ask(["nvidia-smi", "-q", "-x"])
    host = parse_host(text) if text else Host(missing=("gpu", "driver"))
    if not host.gpus:
        asked = read_nvml()
        if asked is not None:
            host = host_of([asked])
    setup = read_setup()
    findings = list(host.findings)
    if not host.gpus:
        if setup.cards:
            reason = f"{setup.cards} NVIDIA card(s) on the PCI bus, and nvidia-smi lists none: {_short(text)}"
            findings.append(HostFinding("no-gpu", "fail", reason, "gpuimg doctor"))
        else:
            smi = "nvidia-smi lists none" if shutil.which("nvidia-smi") else "no nvidia-smi"
            reason = f"there is no NVIDIA GPU on this machine ({smi}, no card on the PCI bus, no /dev/nvidia0)"
            findings.append(HostFinding("no-gpu", "ask", reason, "run this on the GPU server, or give a FILE"))
    findings += parse_host(_ask(["dmesg"]), hint="kernel-log").findings
    nvcc = re.search(r"release (\d+\.\d+)", _ask(["nvcc", "--version"]))
    engine = setup.engine or {}
    details = {
        "engine": engine.get("ServerVersion"),
        "runtimes": sorted(engine.get("Runtimes") or {}) or None,
        "container_toolkit": setup.toolkit,
        "toolkit_mode": _mode(setup.toolkit_config),
        "cdi_devices": [name for spec in setup.specs for name in spec.devices] or None,
        "in_container": setup.container or None,
    }
    driver = host.driver or setup.driver
    return replace(
        host,
        driver=driver,
        findings=tuple(findings),
        missing=tuple(m for m in host.missing if m != "driver" or driver is None),
        toolkit=nvcc.group(1) if nvcc else None,
        os=_os(),
        glibc=platform.libc_ver()[1] or None,
        python=".".join(platform.python_version_tuple()[:2]),
        machine=platform.machine(),
        runtime="wsl2" if "microsoft" in platform.release().lower() else host.runtime,
        details={**host.details, **{k: v for k, v in details.items() if v is not None}},
    )


def _mode(config: str | None) -> str | None:
    found = re.search(r'^\s*mode\s*=\s*"([\w-]+)"', config or "", re.MULTILINE)
    return found.group(1) if found else None


def _short(text: str) -> str:
    return " ".join(text.split())[:200] or "it is missing"


def _ask(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False, errors="replace")
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr


def _os() -> str | None:
    try:
        facts = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', Path("/etc/os-release").read_text(), re.MULTILINE))
    except OSError:
        return None
    return f"{facts['ID']}{facts.get('VERSION_ID', '')}" if "ID" in facts else None
