"""Known traces of known faults: what a line on stderr, an exception or an exit means, and what to do.

Two uses. A check that failed without a hint gets one from here. And a check that *passed* while its output holds a
fatal trace (MindSpore with a NumPy it was not built for prints a traceback, computes on, and ends with 0) is failed.
"""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass


@dataclass(frozen=True)
class Trap:
    """A pattern and its meaning. ``fatal``: a check whose output holds it has not passed, whatever it returned."""

    id: str
    pattern: str
    cause: str
    hint: str
    source: str
    fatal: bool = False


TRAPS = (
    Trap(
        "numpy-abi",
        r"compiled using NumPy 1\.x cannot be run in|_ARRAY_API not found|Numpy init failed"
        r"|numpy\.core\.multiarray failed to import|numpy\.dtype size changed",
        "a binary module was built for NumPy 1.x and NumPy 2 is installed",
        "install numpy<2 beside it (pip install 'numpy<2'), or a release of the framework built for NumPy 2",
        "measured: mindspore 2.10.0 with NumPy 2.4.6 prints this traceback and exits 0",
        fatal=True,
    ),
    Trap(
        "no-kernel-image",
        r"no kernel image is available|CUDA_ERROR_NO_BINARY_FOR_GPU|cudaErrorNoKernelImageForDevice",
        "the framework holds no machine code for this card's compute capability, and no PTX to compile",
        "take a build for a newer wheel_cuda that lists this card's sm (see triangle.sm), or another card",
        "pytorch#167244, pytorch#149845, vllm#19906",
    ),
    Trap(
        "cpu-build",
        r"not compiled with CUDA enabled|module 'torch\._C' has no attribute '_cuda_|not compiled with CUDA|"
        r"is not compiled with GPU|NotFoundError.*not compiled with GPU",
        "this is a CPU-only build of the framework",
        "install the CUDA build (see gpuimg resolve), or limit the run with --device cpu",
        "torch._C, paddle.base",
    ),
    Trap(
        "driver-too-old",
        r"driver version is insufficient|NVIDIA driver on your system is too old|cudaErrorInsufficientDriver",
        "the driver is older than the wheel_cuda needs",
        "take a build with an older wheel_cuda, or a server with a newer driver (see host.driver)",
        "pytorch#135508, pytorch#98885",
    ),
    Trap(
        "compat-on-geforce",
        r"forward compatibility was attempted on non supported HW|\b(?:CUDA )?[Ee]rror 804\b"
        r"|COMPAT_NOT_SUPPORTED_ON_DEVICE",
        "a cuda-compat libcuda is on the loader's path, and this card does not support forward compatibility",
        "remove /usr/local/cuda/compat from LD_LIBRARY_PATH, or use a data-centre card",
        "nvidia-docker#1515",
    ),
    Trap(
        "fabric-manager",
        r"system not yet initialized|\b(?:CUDA )?[Ee]rror 802\b|SYSTEM_NOT_READY",
        "the NVSwitch fabric is not up: fabric manager is not running on the host",
        "ask the provider to start nvidia-fabricmanager of the driver's own version",
        "gpustack#1254",
    ),
    Trap(
        "cudnn-mixed",
        r"CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH|SUBLIBRARY_VERSION_MISMATCH",
        "two cuDNN versions meet in one process",
        "leave one cuDNN on the loader's path: uninstall the system's libcudnn9 or clear LD_LIBRARY_PATH",
        "pytorch#188892, pytorch#185512",
    ),
    Trap(
        "cudnn-older",
        r"(?:Loaded|loaded) runtime CuDNN library: \S+ but source was compiled with|CuDNN library needs to have",
        "the cuDNN that was loaded is older than the one the framework was built with",
        "upgrade the cuDNN that is found first (see triangle.loaded), or take it off the loader's path",
        "jaxlib-feedstock#329",
    ),
    Trap(
        "ptx-version",
        r"CUDA_ERROR_UNSUPPORTED_PTX_VERSION|unsupported PTX version|unsupported toolchain"
        r"|PTX was compiled with an unsupported",
        "the PTX is newer than the driver's compiler",
        "take machine code for this card (newer build), or a driver at least as new as the wheel_cuda",
        "https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html",
    ),
    Trap(
        "missing-library",
        r"(lib[\w.+-]+\.so[\w.]*): cannot open shared object file",
        "a shared library that the framework needs is not in the image",
        "install the package that brings it; a slim base image lacks system libraries, a wheel without its "
        "nvidia-* dependencies lacks CUDA's",
        "ld.so(8)",
    ),
    Trap(
        "shm",
        r"Bus error|bus error|insufficient shared memory|/dev/shm.*No space left|No space left.*?/dev/shm",
        "/dev/shm is full or too small",
        "start the container with --shm-size=8g (or --ipc=host)",
        "pytorch#5040, pytorch#1355",
    ),
    Trap(
        "fork-after-cuda",
        r"Cannot re-initialize CUDA in forked subprocess|initialization error.*fork|CUDA initialized before forking",
        "a worker was forked after the GPU was in use",
        "start workers with the spawn method, or touch the GPU only in the main process after they started",
        "https://pytorch.org/docs/stable/notes/multiprocessing.html",
    ),
    Trap(
        "gpu-memory",
        r"CUDA out of memory|CUDA_ERROR_OUT_OF_MEMORY|RESOURCE_EXHAUSTED|cudaErrorMemoryAllocation|"
        r"OutOfMemoryError",
        "the GPU's memory was not enough, or others hold it",
        "see which processes use the GPU (nvidia-smi), or a card with more memory",
        "CUDA driver API, error 2",
    ),
    Trap(
        "memory",
        r"^MemoryError|Cannot allocate memory|std::bad_alloc|unable to allocate",
        "the container's memory limit was not enough",
        "start it with more memory (docker run --memory), or smaller batches",
        "malloc(3)",
    ),
    Trap(
        "xid-lost",
        r"GPU is lost|GPU has fallen off the bus|CUDA_ERROR_ECC_UNCORRECTABLE|uncorrectable ECC error",
        "the card failed while it worked",
        "return the server: its card is faulty (see card.wear)",
        "https://docs.nvidia.com/deploy/xid-errors/",
        fatal=True,
    ),
    Trap(
        "nccl-p2p",
        r"NCCL WARN.*P2P|peer access is not supported|NCCL timeout|Watchdog caught collective operation timeout",
        "the GPUs cannot reach each other as NCCL expects (IOMMU/ACS, missing NVLink)",
        "try NCCL_P2P_DISABLE=1; if that cures it, the host's IOMMU/ACS blocks peer access",
        "nccl-tests#117, nccl#2079, nccl#631",
    ),
    Trap(
        "locale",
        r"UnicodeEncodeError: 'ascii'|UnicodeDecodeError: 'ascii'|ascii codec can't",
        "the locale is POSIX: text is ASCII",
        "set LANG=C.UTF-8 in the image",
        "docker-library/python#13, #718",
    ),
    Trap(
        "nvml-unknown",
        r"Failed to initialize NVML: Unknown Error|NVML.*Unknown Error",
        "the container lost its GPU devices (systemctl daemon-reload on the host)",
        "restart the container; on the host use CDI or create the /dev/char links",
        "nvidia-container-toolkit#48",
    ),
    Trap(
        "ptxas",
        r"ptxas.*(?:not found|No such file)|Couldn't (?:find|invoke|get) .*ptxas|No PTX compilation provider",
        "the framework compiles for the GPU at run time and finds no ptxas",
        "install nvidia-cuda-nvcc (the wheel) or put the toolkit's ptxas on PATH",
        "measured: JAX 0.11 in an image without the CUDA toolkit fails at its first computation",
    ),
    Trap(
        "cpu-fallback",
        r"Could not load dynamic library|Cannot dlopen some GPU libraries|Skipping registering GPU devices"
        r"|Failed to create CUDAExecutionProvider|falling back to cpu",
        "the framework could not load its GPU libraries and fell back to the CPU",
        "install the GPU libraries its message names (tensorflow[and-cuda], onnxruntime-gpu's cuda and cudnn)",
        "tensorflow and onnxruntime print this and go on",
    ),
)

SIGNAL_HINTS = {
    signal.SIGSEGV: (
        "a native library crashed",
        "usually two versions of one library in a process (see triangle.loaded), or a module built for another ABI",
    ),
    signal.SIGBUS: (
        "a memory-mapped page could not be had",
        "most often /dev/shm is too small: docker run --shm-size=8g; else the disk is full",
    ),
    signal.SIGILL: (
        "an instruction this CPU does not have",
        "the wheel needs a newer CPU (AVX2, AVX-512): another server, or a build for older CPUs",
    ),
    signal.SIGABRT: ("a native library gave up (abort)", "its last words are in the output of this check"),
    signal.SIGFPE: ("arithmetic fault in native code", "its last words are in the output of this check"),
    signal.SIGKILL: (
        "killed from outside",
        "almost always memory: give the container more (docker run --memory), or a smaller batch",
    ),
}


def find_trap(text: str, fatal_only: bool = False) -> Trap | None:
    """The first trap whose trace is in the text."""
    for trap in TRAPS:
        if (trap.fatal or not fatal_only) and re.search(trap.pattern, text, re.MULTILINE):
            return trap
    return None


def hint_for(text: str) -> str | None:
    """What to do about the first known trace in the text, with its cause."""
    trap = find_trap(text)
    return f"{trap.cause}: {trap.hint}" if trap else None
