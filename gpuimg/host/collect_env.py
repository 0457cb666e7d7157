"""``python -m torch.utils.collect_env`` (vLLM's as well)."""

from __future__ import annotations

import re

from gpuimg.host.readings import Readings, given
from gpuimg.nouns import Gpu, Requirement


def read_collect_env(text: str) -> Readings | None:
    """None when it is not one."""
    if not re.search(r"^PyTorch version\s*:", text, re.MULTILINE):
        return None
    out = Readings()

    def field(name: str) -> str | None:
        found = re.search(rf"^{re.escape(name)}\s*:[ \t]*(.*)$", text, re.MULTILINE)
        value = given(found.group(1)) if found else None
        return None if value in (None, "Could not collect") else value

    torch = field("PyTorch version")
    if torch:
        version, _, local = torch.partition("+")
        out.frameworks.append(Requirement("torch", f"=={version}", local or None, raw=f"torch {torch}"))
    out.driver = field("Nvidia driver version")
    out.toolkit = ".".join((field("CUDA runtime version") or "").split(".")[:2]) or None
    out.details["wheel_cuda"] = field("CUDA used to build PyTorch")
    libc = re.search(r"glibc-([\d.]+)", text)
    out.glibc = libc.group(1) if libc else None
    python = re.search(r"^Python version\s*:\s*(\d+\.\d+)", text, re.MULTILINE)
    out.python = python.group(1) if python else None
    system = re.search(r"^OS\s*:\s*(?:(Ubuntu) (\d+\.\d+)|(Debian)[^\d]*(\d+)|(CentOS)[^\d]*(\d+))", text, re.MULTILINE)
    if system:
        parts = [part for part in system.groups() if part]
        out.os = f"{parts[0].lower()}{parts[1]}"
    cudnn = re.search(r"libcudnn\.so\.(\d+\.\d+\.\d+)|cudnn[\w]*-(\d+\.\d+\.\d+)", text)
    out.cudnn = next((g for g in cudnn.groups() if g), None) if cudnn else None
    for index, name in re.findall(r"^(?:GPU models and configuration\s*:\s*)?GPU (\d+): (.+?)\s*$", text, re.MULTILINE):
        out.gpus.append(Gpu(name=re.sub(r"\s*\(UUID.*", "", name), index=int(index)))
    if re.search(r"microsoft|WSL", text, re.I):
        out.runtime = "wsl2"
    return out
