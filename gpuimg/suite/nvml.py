"""NVML through ctypes: facts, counters and clocks of the visible GPUs, without any package.

The library is the driver's own (``libnvidia-ml.so.1``), so it needs nothing in the image. A value that cannot be read
is left out, never guessed.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable
from typing import Any

NOT_SUPPORTED = 3
CLOCK_SM, CLOCK_MEM = 1, 2
THROTTLE_BITS = {
    0x1: "gpu_idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}
"""nvml.h, nvmlClocksEventReasons."""


class NvmlError(Exception):
    """NVML cannot be used: no library, no driver, or a call refused. ``code`` is NVML's, or None."""

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class _Utilization(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class _Pci(ctypes.Structure):
    _fields_ = [
        ("bus_id_legacy", ctypes.c_char * 16),
        ("domain", ctypes.c_uint),
        ("bus", ctypes.c_uint),
        ("device", ctypes.c_uint),
        ("pci_device_id", ctypes.c_uint),
        ("pci_subsystem_id", ctypes.c_uint),
        ("bus_id", ctypes.c_char * 32),
    ]


class Nvml:
    """An initialised NVML. Use as a context manager."""

    def __init__(self, library: str = "libnvidia-ml.so.1") -> None:
        try:
            self.lib = ctypes.CDLL(library)
        except OSError as error:
            raise NvmlError(f"{library} cannot be loaded: {error}") from None
        code = self.lib.nvmlInit_v2()
        if code != 0:
            raise NvmlError(f"nvmlInit answered {code} ({self._text(code)})", code)

    def __enter__(self) -> Nvml:
        return self

    def __exit__(self, *_: object) -> None:
        self.lib.nvmlShutdown()

    def _text(self, code: int) -> str:
        try:
            self.lib.nvmlErrorString.restype = ctypes.c_char_p
            return (self.lib.nvmlErrorString(code) or b"?").decode("utf-8", "replace")
        except AttributeError:
            return "?"

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function; NvmlError with its name when it is missing or refuses."""
        function = getattr(self.lib, name, None)
        if function is None:
            raise NvmlError(f"{name} is not in this driver")
        code = function(*arguments)
        if code != 0:
            raise NvmlError(f"{name}: {self._text(code)}", code)

    def text(self, name: str, *arguments: Any) -> str:
        buffer = ctypes.create_string_buffer(128)
        self.call(name, *arguments, buffer, ctypes.c_uint(128))
        return buffer.value.decode("utf-8", "replace")

    def number(self, name: str, *arguments: Any, kind: Any = ctypes.c_uint) -> int:
        value = kind(0)
        self.call(name, *arguments, ctypes.byref(value))
        return int(value.value)

    def driver(self) -> str:
        """Kernel driver version: '580.159.04'."""
        return self.text("nvmlSystemGetDriverVersion")

    def driver_cuda(self) -> str:
        """What nvidia-smi prints as CUDA version: '13.0'."""
        value = self.number("nvmlSystemGetCudaDriverVersion_v2", kind=ctypes.c_int)
        return f"{value // 1000}.{value % 1000 // 10}"

    def count(self) -> int:
        return self.number("nvmlDeviceGetCount_v2")

    def handle(self, index: int) -> Any:
        handle = ctypes.c_void_p()
        self.call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
        return handle

    def identity(self, index: int) -> dict[str, Any]:
        """Name, PCI ids, compute capability, memory, links, limits of one GPU; keys that could not be read are absent.

        Units: memory MiB, power W, clocks MHz, PCIe generation and width as numbers.
        """
        h = self.handle(index)
        facts: dict[str, Any] = {"index": index}

        def put(key: str, read: Callable[[], Any]) -> None:
            try:
                facts[key] = read()
            except (NvmlError, OSError, ValueError):
                return

        put("name", lambda: self.text("nvmlDeviceGetName", h))
        put("uuid", lambda: self.text("nvmlDeviceGetUUID", h))
        put("vbios", lambda: self.text("nvmlDeviceGetVbiosVersion", h))

        def pci() -> None:
            info = _Pci()
            self.call("nvmlDeviceGetPciInfo_v3", h, ctypes.byref(info))
            facts["pci_device_id"] = f"{info.pci_device_id >> 16:04X}"
            facts["pci_vendor_id"] = f"{info.pci_device_id & 0xFFFF:04X}"
            facts["pci_subsystem_id"] = f"{info.pci_subsystem_id:08X}"
            facts["pci_bus_id"] = info.bus_id.decode("ascii", "replace")

        def capability() -> str:
            major, minor = ctypes.c_int(), ctypes.c_int()
            self.call("nvmlDeviceGetCudaComputeCapability", h, ctypes.byref(major), ctypes.byref(minor))
            return f"{major.value}.{minor.value}"

        def memory() -> int:
            info = _Memory()
            self.call("nvmlDeviceGetMemoryInfo", h, ctypes.byref(info))
            facts["memory_used_mib"] = int(info.used) >> 20
            return int(info.total) >> 20

        def mig() -> bool:
            now, pending = ctypes.c_uint(), ctypes.c_uint()
            self.call("nvmlDeviceGetMigMode", h, ctypes.byref(now), ctypes.byref(pending))
            return now.value == 1

        def ecc() -> bool:
            now, pending = ctypes.c_uint(), ctypes.c_uint()
            self.call("nvmlDeviceGetEccMode", h, ctypes.byref(now), ctypes.byref(pending))
            return now.value == 1

        with contextlib.suppress(NvmlError):
            pci()
        put("compute_capability", capability)
        put("memory_mib", memory)
        put("mig", mig)
        put("ecc", ecc)
        put("brand", lambda: self.number("nvmlDeviceGetBrand", h))
        put("cuda_cores", lambda: self.number("nvmlDeviceGetNumGpuCores", h))
        put("memory_bus_bits", lambda: self.number("nvmlDeviceGetMemoryBusWidth", h))
        put("virtualization", lambda: self.number("nvmlDeviceGetVirtualizationMode", h))
        put("pcie_gen", lambda: self.number("nvmlDeviceGetCurrPcieLinkGeneration", h))
        put("pcie_width", lambda: self.number("nvmlDeviceGetCurrPcieLinkWidth", h))
        put("pcie_gen_max", lambda: self.number("nvmlDeviceGetMaxPcieLinkGeneration", h))
        put("pcie_width_max", lambda: self.number("nvmlDeviceGetMaxPcieLinkWidth", h))
        put("power_limit_w", lambda: self.number("nvmlDeviceGetEnforcedPowerLimit", h) / 1000)
        put("power_default_w", lambda: self.number("nvmlDeviceGetPowerManagementDefaultLimit", h) / 1000)
        put("sm_clock_max_mhz", lambda: self.number("nvmlDeviceGetMaxClockInfo", h, CLOCK_SM))
        put("mem_clock_max_mhz", lambda: self.number("nvmlDeviceGetMaxClockInfo", h, CLOCK_MEM))
        return facts

    def wear(self, index: int) -> dict[str, Any]:
        """Counters that age a card: ECC, remapped rows, retired pages, PCIe replays; ``unread``: unreadable ones."""
        h = self.handle(index)
        facts: dict[str, Any] = {"index": index}
        unread: list[str] = []

        def put(key: str, read: Callable[[], Any]) -> None:
            try:
                facts[key] = read()
            except NvmlError as error:
                if error.code != NOT_SUPPORTED:
                    unread.append(f"{key}: {error}")
                else:
                    facts[key] = None

        for kind, word in ((0, "corrected"), (1, "uncorrected")):
            for counter, span in ((0, "volatile"), (1, "aggregate")):
                put(
                    f"ecc_{word}_{span}",
                    lambda kind=kind, counter=counter: self.number(  # type: ignore[misc]
                        "nvmlDeviceGetTotalEccErrors", h, kind, counter, kind=ctypes.c_ulonglong
                    ),
                )

        def remapped() -> dict[str, Any]:
            values = [ctypes.c_uint() for _ in range(4)]
            self.call("nvmlDeviceGetRemappedRows", h, *[ctypes.byref(v) for v in values])
            return {
                "correctable": values[0].value,
                "uncorrectable": values[1].value,
                "pending": values[2].value,
                "failed": values[3].value,
            }

        def retired(cause: int) -> int:
            count = ctypes.c_uint(0)
            code = self.lib.nvmlDeviceGetRetiredPages(h, cause, ctypes.byref(count), None)
            if code not in (0, 7):  # 7: buffer too small, the count is what was asked for
                raise NvmlError(self._text(code), code)
            return int(count.value)

        put("remapped_rows", remapped)
        put("retired_pages_sbe", lambda: retired(0))
        put("retired_pages_dbe", lambda: retired(1))
        put("pcie_replays", lambda: self.number("nvmlDeviceGetPcieReplayCounter", h))
        if unread:
            facts["unread"] = unread
        return facts

    def sample(self, index: int) -> dict[str, Any]:
        """Utilisation (%), clocks (MHz), power (W), temperature (°C), event-reason bits of one GPU, now.

        The same short keys as the recorded curves: util, mem_util, sm, mem, w, c, thr.
        """
        h = self.handle(index)
        row: dict[str, Any] = {}

        def put(key: str, read: Callable[[], Any]) -> None:
            try:
                row[key] = read()
            except NvmlError:
                return

        try:
            use = _Utilization()
            self.call("nvmlDeviceGetUtilizationRates", h, ctypes.byref(use))
            row["util"], row["mem_util"] = int(use.gpu), int(use.memory)
        except NvmlError:
            pass
        put("sm", lambda: self.number("nvmlDeviceGetClockInfo", h, CLOCK_SM))
        put("mem", lambda: self.number("nvmlDeviceGetClockInfo", h, CLOCK_MEM))
        put("w", lambda: self.number("nvmlDeviceGetPowerUsage", h) / 1000)
        put("c", lambda: self.number("nvmlDeviceGetTemperature", h, 0))

        def reasons() -> int:
            try:
                return self.number("nvmlDeviceGetCurrentClocksEventReasons", h, kind=ctypes.c_ulonglong)
            except NvmlError:
                return self.number("nvmlDeviceGetCurrentClocksThrottleReasons", h, kind=ctypes.c_ulonglong)

        put("thr", reasons)
        return row


def throttle_names(bits: int) -> list[str]:
    """Names of the event-reason bits that are set."""
    return [name for bit, name in THROTTLE_BITS.items() if bits & bit]
