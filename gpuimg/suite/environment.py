"""Facts of the place the suite runs in: Python, frameworks installed, GPUs, driver. No framework is imported."""

from __future__ import annotations

import importlib.util
import os
import platform
import sys
from typing import Any

FRAMEWORK_PACKAGES: dict[str, tuple[str, tuple[str, ...]]] = {
    "vllm": ("vllm", ("vllm",)),
    "tensorrt_llm": ("tensorrt_llm", ("tensorrt-llm", "tensorrt_llm")),
    "torch": ("torch", ("torch",)),
    "tensorflow": ("tensorflow", ("tensorflow", "tensorflow-cpu", "tensorflow-gpu", "tf-nightly")),
    "jax": ("jax", ("jax",)),
    "paddlepaddle": ("paddle", ("paddlepaddle-gpu", "paddlepaddle")),
    "mindspore": ("mindspore", ("mindspore", "mindspore-gpu")),
    "cupy": ("cupy", ("cupy-cuda13x", "cupy-cuda12x", "cupy-cuda11x", "cupy")),
    "onnxruntime": ("onnxruntime", ("onnxruntime-gpu", "onnxruntime")),
}
"""Adapter → (module, PyPI distributions). In the order in which one is chosen when the user names none."""

SHOWN_VARIABLES = (
    "NVIDIA_VISIBLE_DEVICES",
    "NVIDIA_DRIVER_CAPABILITIES",
    "NVIDIA_REQUIRE_",
    "NVIDIA_DISABLE_REQUIRE",
    "NVIDIA_CTK_",
    "NVIDIA_PRODUCT_NAME",
    "CUDA_",
    "NCCL_",
    "XLA_",
    "TF_CPP_",
    "TF_FORCE_",
    "TF_ENABLE_",
    "TF_XLA_",
    "JAX_",
    "LD_LIBRARY_PATH",
    "LANG",
    "LC_ALL",
    "PYTHONPATH",
    "PYTHONUTF8",
    "PYTHONIOENCODING",
)
"""Prefixes of the variables that are recorded; whatever looks like a credential is left out all the same."""
SECRET_WORDS = ("KEY", "TOKEN", "SECRET", "PASSW", "CREDENTIAL")


def installed_version(module: str, distributions: tuple[str, ...]) -> str | None:
    """Version of an installed package without importing it; 'unknown' when it is there without metadata."""
    from importlib import metadata

    try:
        if importlib.util.find_spec(module) is None:
            return None
    except (ImportError, ValueError):
        return None
    for distribution in distributions:
        try:
            return metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
    return "unknown"


def frameworks_here() -> dict[str, str]:
    """Adapter name → version of every framework that is installed."""
    found = {}
    for name, (module, distributions) in FRAMEWORK_PACKAGES.items():
        version = installed_version(module, distributions)
        if version is not None:
            found[name] = version
    return found


def gpu_facts() -> dict[str, Any]:
    """``{gpus, driver, driver_cuda, nvml_error?, cuda_error?}``: NVML first, libcuda where NVML was not injected."""
    from .cudadrv import CudaError, Driver
    from .nvml import Nvml, NvmlError

    facts: dict[str, Any] = {"gpus": []}
    try:
        with Nvml() as nvml:
            facts["driver"] = nvml.driver()
            facts["driver_cuda"] = nvml.driver_cuda()
            facts["gpus"] = [nvml.identity(i) for i in range(nvml.count())]
            facts["gpu_source"] = "nvml"
    except NvmlError as error:
        facts["nvml_error"] = str(error)
    visible: list[dict[str, Any]] = []
    try:
        driver = Driver()
        facts.setdefault("driver_cuda", driver.version())
        facts["libcuda_version"] = driver.version()
        visible = [driver.facts(i) for i in range(driver.count())]
    except (OSError, CudaError, AttributeError) as error:
        facts["cuda_error"] = str(error)
    if not facts["gpus"] and visible:
        facts["gpus"] = visible
        facts["gpu_source"] = "libcuda"
    by_bus = {(g.get("pci_domain"), g.get("pci_bus"), g.get("pci_device")): g for g in visible if "pci_bus" in g}
    for gpu in facts["gpus"]:
        bus = str(gpu.get("pci_bus_id", ""))
        try:
            domain, number, rest = bus.split(":")
            key = (int(domain, 16), int(number, 16), int(rest.split(".")[0], 16))
        except ValueError:
            continue
        match = by_bus.get(key)
        if match is not None:
            gpu["cuda_name"], gpu["sm_count"] = match["name"], match.get("sm_count")
            gpu["cuda_memory_mib"], gpu["cuda_index"] = match["memory_mib"], match["index"]
    facts["cuda_devices"] = len(visible)
    usable = [gpu for gpu in facts["gpus"] if "cuda_index" in gpu]
    if usable and len(usable) == len(visible):
        # CUDA_VISIBLE_DEVICES hides and reorders what NVML still lists: GPU i of a check is CUDA's device i
        facts["hidden_gpus"] = len(facts["gpus"]) - len(usable)
        facts["gpus"] = sorted(usable, key=lambda gpu: int(gpu["cuda_index"]))
    return facts


def kernel_driver() -> str | None:
    """Version of the loaded kernel module from /proc/driver/nvidia/version, or None."""
    import re

    try:
        with open("/proc/driver/nvidia/version", encoding="utf-8", errors="replace") as file:
            found = re.search(r"Kernel Module\s+(?:for \S+\s+)?(\d+(?:\.\d+)+)", file.read())
    except OSError:
        return None
    return found.group(1) if found else None


def platform_facts() -> dict[str, Any]:
    """Python, operating system, processor count, chosen environment variables."""
    libc, libc_version = platform.libc_ver()
    system = "unknown"
    try:
        with open("/etc/os-release", encoding="utf-8", errors="replace") as file:
            values = dict(line.rstrip("\n").split("=", 1) for line in file if "=" in line)
        system = values.get("ID", "").strip('"') + values.get("VERSION_ID", "").strip('"')
    except (OSError, ValueError):
        pass
    return {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "executable": sys.executable,
        "machine": platform.machine(),
        "kernel": platform.release(),
        "os": system,
        "libc": f"{libc} {libc_version}".strip(),
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "uid": os.getuid() if hasattr(os, "getuid") else None,
        "variables": {name: value for name, value in sorted(os.environ.items()) if name.startswith(SHOWN_VARIABLES)},
        "kernel_driver": kernel_driver(),
        "lc_ctype_coerced": lc_ctype_coerced(),
    }


def lc_ctype_coerced() -> bool:
    """Whether LC_CTYPE is Python's own addition (PEP 538: in a POSIX locale it sets it for itself and its children)."""
    if "LC_CTYPE" not in os.environ:
        return False
    try:
        with open("/proc/self/environ", "rb") as file:  # the environment as the program was started with
            return b"LC_CTYPE=" not in file.read()
    except OSError:
        return not os.environ.get("LC_ALL") and os.environ.get("LANG", "") in ("", "C", "POSIX")
