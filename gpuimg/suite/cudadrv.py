"""The CUDA driver API (libcuda) through ctypes: is the GPU usable, in steps that each name their own cause.

Works without any CUDA toolkit in the image. Every step is recorded with its error code.
"""

from __future__ import annotations

import ctypes
from typing import Any

CAUSES: dict[int, tuple[str, str]] = {
    1: ("invalid value", "a fault of the caller or of a libcuda that does not fit the kernel driver"),
    2: ("out of memory", "another process holds the GPU's memory: nvidia-smi shows which"),
    3: ("driver not initialised", "the container has libcuda but not the device nodes"),
    34: (
        "stub library",
        "the libcuda that was loaded is the toolkit's link-time stub: take /usr/local/cuda/lib64/stubs off "
        "LD_LIBRARY_PATH",
    ),
    35: ("driver too old", "the kernel driver is older than this libcuda or framework needs"),
    46: ("device unavailable", "another process holds the GPU exclusively (compute mode), or it is in a bad state"),
    100: (
        "no device",
        "no GPU was handed to this container: run it with --gpus all, --runtime=nvidia or --device "
        "nvidia.com/gpu=all; CUDA_VISIBLE_DEVICES must not be empty",
    ),
    101: ("invalid device", "CUDA_VISIBLE_DEVICES or NVIDIA_VISIBLE_DEVICES names a GPU that is not here"),
    200: ("invalid image", "the kernel image is not for this GPU"),
    209: ("no binary for this GPU", "the code holds no machine code or PTX for this compute capability"),
    214: ("uncorrectable ECC error", "the card's memory is faulty: return the server"),
    218: ("invalid PTX", "the driver's compiler refused the PTX"),
    222: (
        "unsupported PTX version",
        "the PTX is newer than the driver's compiler: minor-version compatibility has no JIT; newer driver, or "
        "machine code for this card",
    ),
    223: ("JIT compilation disabled", "CUDA_DISABLE_PTX_JIT is set"),
    300: ("invalid source", "the kernel source could not be read"),
    719: ("launch failed", "a kernel crashed on the GPU"),
    802: (
        "system not ready",
        "NVSwitch machine whose fabric manager is not running: the provider must start nvidia-fabricmanager of "
        "the driver's own version",
    ),
    803: (
        "driver mismatch",
        "the user-mode libcuda and the kernel driver have different versions: the driver was upgraded and the "
        "container or CDI spec is stale; restart the container after nvidia-ctk cdi generate",
    ),
    804: (
        "forward compatibility refused",
        "a cuda-compat libcuda was loaded on a card that does not support it (GeForce): remove the compat folder "
        "from LD_LIBRARY_PATH",
    ),
    999: (
        "unknown error",
        "the device nodes are stale or nvidia-uvm is not loaded on the host: modprobe nvidia-uvm, restart the "
        "container; after a suspend reload the module",
    ),
}
"""Error code → (meaning, what to do). cuda.h and the threads named in docs/checks.md."""

ATTRIBUTES = {
    "sm_count": 16,
    "clock_khz": 13,
    "memory_clock_khz": 36,
    "memory_bus_bits": 37,
    "l2_bytes": 38,
    "max_threads_per_sm": 39,
    "cc_major": 75,
    "cc_minor": 76,
    "integrated": 18,
    "ecc": 32,
    "compute_mode": 20,
    "pci_bus": 33,
    "pci_device": 34,
    "pci_domain": 50,
}
"""CUdevice_attribute numbers of cuda.h."""


class CudaError(Exception):
    """A driver call answered an error. ``step`` is the call, ``code`` the number."""

    def __init__(self, step: str, code: int, name: str = "") -> None:
        meaning = CAUSES.get(code, (name or "unlisted error", ""))[0]
        super().__init__(f"{step} answered {code}{f' {name}' if name else ''}: {meaning}")
        self.step, self.code = step, code
        self.hint = CAUSES.get(code, ("", None))[1]


class Driver:
    """libcuda, initialised. Raises OSError when there is none, CudaError when cuInit refuses."""

    def __init__(self, library: str = "libcuda.so.1") -> None:
        self.lib = ctypes.CDLL(library)
        self.call("cuInit", ctypes.c_uint(0))

    def call(self, name: str, *arguments: Any) -> None:
        code = int(getattr(self.lib, name)(*arguments))
        if code != 0:
            raise CudaError(name, code, self._name(code))

    def _name(self, code: int) -> str:
        try:
            text = ctypes.c_char_p()
            self.lib.cuGetErrorName(code, ctypes.byref(text))
            return (text.value or b"").decode()
        except (AttributeError, OSError):
            return ""

    def version(self) -> str:
        """driver_cuda as libcuda itself says it: '13.0'."""
        value = ctypes.c_int()
        self.call("cuDriverGetVersion", ctypes.byref(value))
        return f"{value.value // 1000}.{value.value % 1000 // 10}"

    def count(self) -> int:
        value = ctypes.c_int()
        self.call("cuDeviceGetCount", ctypes.byref(value))
        return value.value

    def device(self, index: int) -> Any:
        value = ctypes.c_int()
        self.call("cuDeviceGet", ctypes.byref(value), ctypes.c_int(index))
        return value

    def facts(self, index: int) -> dict[str, Any]:
        """Name, compute capability, SM count, memory in MiB and the attributes of one device."""
        device = self.device(index)
        name = ctypes.create_string_buffer(128)
        self.call("cuDeviceGetName", name, 128, device)
        total = ctypes.c_size_t()
        self.call("cuDeviceTotalMem_v2", ctypes.byref(total), device)
        facts: dict[str, Any] = {
            "index": index,
            "name": name.value.decode("utf-8", "replace"),
            "memory_mib": total.value >> 20,
        }
        for key, number in ATTRIBUTES.items():
            value = ctypes.c_int()
            if self.lib.cuDeviceGetAttribute(ctypes.byref(value), number, device) == 0:
                facts[key] = value.value
        facts["compute_capability"] = f"{facts.get('cc_major')}.{facts.get('cc_minor')}"
        return facts

    def context(self, index: int) -> Any:
        """The primary context of a device, current in this thread."""
        context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self.device(index))
        self.call("cuCtxSetCurrent", context)
        return context

    def round_trip(self, data: bytes) -> bytes:
        """Copy bytes to the GPU, there to a second buffer, and back."""
        size = len(data)
        one, two = ctypes.c_ulonglong(), ctypes.c_ulonglong()
        back = ctypes.create_string_buffer(size)
        self.call("cuMemAlloc_v2", ctypes.byref(one), ctypes.c_size_t(size))
        try:
            self.call("cuMemAlloc_v2", ctypes.byref(two), ctypes.c_size_t(size))
            try:
                self.call("cuMemcpyHtoD_v2", one, data, ctypes.c_size_t(size))
                self.call("cuMemcpyDtoD_v2", two, one, ctypes.c_size_t(size))
                self.call("cuCtxSynchronize")
                self.call("cuMemcpyDtoH_v2", back, two, ctypes.c_size_t(size))
            finally:
                self.lib.cuMemFree_v2(two)
        finally:
            self.lib.cuMemFree_v2(one)
        return back.raw

    def run_ptx(self, ptx: bytes, values: list[int]) -> list[int]:
        """Compile PTX with the driver's own compiler and run ``triple_plus_one`` over 32-bit values."""
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(ptx + b"\0"))
        self.call("cuModuleGetFunction", ctypes.byref(function), module, b"triple_plus_one")
        count = len(values)
        host = (ctypes.c_uint * count)(*values)
        buffer = ctypes.c_ulonglong()
        self.call("cuMemAlloc_v2", ctypes.byref(buffer), ctypes.c_size_t(4 * count))
        try:
            self.call("cuMemcpyHtoD_v2", buffer, host, ctypes.c_size_t(4 * count))
            size = ctypes.c_uint(count)
            parameters = (ctypes.c_void_p * 2)(
                ctypes.cast(ctypes.byref(buffer), ctypes.c_void_p), ctypes.cast(ctypes.byref(size), ctypes.c_void_p)
            )
            blocks = (count + 127) // 128
            self.call("cuLaunchKernel", function, blocks, 1, 1, 128, 1, 1, 0, None, parameters, None)
            self.call("cuCtxSynchronize")
            self.call("cuMemcpyDtoH_v2", host, buffer, ctypes.c_size_t(4 * count))
        finally:
            self.lib.cuMemFree_v2(buffer)
            self.lib.cuModuleUnload(module)
        return list(host)
