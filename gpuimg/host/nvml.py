"""Cards asked through NVML (nvidia-ml-py, an optional package), where nvidia-smi is missing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpuimg.host.readings import Readings
from gpuimg.nouns import Gpu


def read_nvml() -> Readings | None:
    """None when the package or the driver's library is missing, or the driver does not answer."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    try:
        out = Readings()
        out.driver = _text(_tried(pynvml.nvmlSystemGetDriverVersion))
        cuda = _tried(pynvml.nvmlSystemGetCudaDriverVersion)
        out.driver_cuda = f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else None
        for index in range(_tried(pynvml.nvmlDeviceGetCount) or 0):
            handle = _tried(pynvml.nvmlDeviceGetHandleByIndex, index)
            if handle is not None:
                out.gpus.append(_gpu(pynvml, index, handle))
        return None if out.empty() else out
    finally:
        _tried(pynvml.nvmlShutdown)


def _tried(function: Callable[..., Any], *arguments: Any) -> Any:
    """The value, or None for anything this card or driver does not answer."""
    import pynvml

    try:
        return function(*arguments)
    except (pynvml.NVMLError, AttributeError, TypeError):
        return None


def _text(value: Any) -> str | None:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _gpu(pynvml: Any, index: int, handle: Any) -> Gpu:
    capability = _tried(pynvml.nvmlDeviceGetCudaComputeCapability, handle)
    memory = _tried(pynvml.nvmlDeviceGetMemoryInfo, handle)
    pci = _tried(pynvml.nvmlDeviceGetPciInfo, handle)
    ecc = _tried(pynvml.nvmlDeviceGetEccMode, handle)
    mig = _tried(pynvml.nvmlDeviceGetMigMode, handle)
    rows = _tried(pynvml.nvmlDeviceGetRemappedRows, handle)
    limit = _tried(pynvml.nvmlDeviceGetEnforcedPowerLimit, handle)
    details: dict[str, Any] = {
        "memory_used_mib": memory.used // 2**20 if memory else None,
        "power_limit_w": limit / 1000 if limit else None,
        "temperature_c": _tried(pynvml.nvmlDeviceGetTemperature, handle, 0),
        "pcie_width": _tried(pynvml.nvmlDeviceGetCurrPcieLinkWidth, handle),
        "pcie_width_max": _tried(pynvml.nvmlDeviceGetMaxPcieLinkWidth, handle),
    }
    if rows:
        names = ("remap_correctable", "remap_uncorrectable", "remap_pending", "remap_failure")
        details.update(zip(names, (rows[0], rows[1], bool(rows[2]), bool(rows[3])), strict=True))
    device = getattr(pci, "pciDeviceId", None)
    return Gpu(
        name=_text(_tried(pynvml.nvmlDeviceGetName, handle)) or "unknown NVIDIA GPU",
        index=index,
        compute_capability=f"{capability[0]}.{capability[1]}" if capability else None,
        memory_mib=memory.total // 2**20 if memory else None,
        pci_id=f"{device >> 16:04X}" if device else None,
        bus_id=_text(getattr(pci, "busId", None)),
        uuid=_text(_tried(pynvml.nvmlDeviceGetUUID, handle)),
        mig=bool(mig[0]) if mig else None,
        ecc=bool(ecc[0]) if ecc else None,
        details={k: v for k, v in details.items() if v is not None},
    )
