"""This machine: its driver asked through nvidia-smi, its system through the usual files."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

from gpuimg.host.detect import parse_host
from gpuimg.nouns import Host, HostFinding


def read_here() -> Host:
    """Facts of the machine this runs on; a machine without a GPU gives a host without one, with the reason."""
    text = _ask(["nvidia-smi", "-q", "-x"])
    host = parse_host(text) if text else Host(missing=("gpu", "driver"))
    kernel = Path("/proc/driver/nvidia/version")
    if host.driver is None and kernel.exists():
        found = re.search(r"Kernel Module\s+(?:for \S+\s+)?(\d[\d.]+)", kernel.read_text())
        host = replace(host, driver=found.group(1) if found else None)
    findings = host.findings
    if not host.gpus:
        if shutil.which("nvidia-smi") is None:
            reason = "there is no nvidia-smi here: no NVIDIA driver, or a container without GPU access"
        else:
            reason = f"nvidia-smi lists no GPU: {text.strip()[:200]}"
        findings = (*findings, HostFinding("no-gpu", "ask", reason, "run this on the GPU server, or give a FILE"))
    logs = parse_host(_ask(["dmesg"]), hint="kernel-log").findings
    nvcc = re.search(r"release (\d+\.\d+)", _ask(["nvcc", "--version"]))
    return replace(
        host,
        findings=(*findings, *logs),
        toolkit=nvcc.group(1) if nvcc else None,
        os=_os(),
        glibc=platform.libc_ver()[1] or None,
        python=".".join(platform.python_version_tuple()[:2]),
        machine=platform.machine(),
        runtime="wsl2" if "microsoft" in platform.release().lower() else host.runtime,
    )


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
