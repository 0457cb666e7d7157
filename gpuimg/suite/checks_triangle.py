"""triangle.*: driver, CUDA and cuDNN as they really meet in one process, against what is declared."""

from __future__ import annotations

import ctypes
import re
import time
from collections.abc import Callable
from typing import Any

from . import fatbin
from .checks_host import read
from .judge_versions import common_code, coverage, group_maps, loaded_problems, numbers
from .registry import Context, Outcome, check, failed, not_applicable, passed, skipped


def _property(prefix: str) -> Callable[[Any], str]:
    def get(lib: Any) -> str:
        parts = []
        for kind in range(3):
            value = ctypes.c_int()
            if getattr(lib, prefix + "GetProperty")(kind, ctypes.byref(value)) != 0:
                raise OSError(f"{prefix}GetProperty refused")
            parts.append(str(value.value))
        return ".".join(parts)

    return get


def _cudnn(lib: Any) -> str:
    lib.cudnnGetVersion.restype = ctypes.c_size_t
    n = int(lib.cudnnGetVersion())
    # 9.1.0 is 90100, 8.9.2 is 8902
    return f"{n // 10000}.{n % 10000 // 100}.{n % 100}" if n >= 10000 else f"{n // 1000}.{n % 1000 // 100}.{n % 100}"


def _nccl(lib: Any) -> str:
    value = ctypes.c_int()
    if lib.ncclGetVersion(ctypes.byref(value)) != 0:
        raise OSError("ncclGetVersion refused")
    n = value.value
    # 2.21.5 is 22105; before 2.9 it was 2804
    return f"{n // 10000}.{n % 10000 // 100}.{n % 100}" if n >= 10000 else f"{n // 1000}.{n % 1000 // 100}.{n % 100}"


def _cudart(lib: Any) -> str:
    value = ctypes.c_int()
    if lib.cudaRuntimeGetVersion(ctypes.byref(value)) != 0:
        raise OSError("cudaRuntimeGetVersion refused")
    return f"{value.value // 1000}.{value.value % 1000 // 10}"


def _pair(function: str) -> Callable[[Any], str]:
    def get(lib: Any) -> str:
        a, b = ctypes.c_int(), ctypes.c_int()
        if getattr(lib, function)(ctypes.byref(a), ctypes.byref(b)) != 0:
            raise OSError(f"{function} refused")
        return f"{a.value}.{b.value}"

    return get


def _cublaslt(lib: Any) -> str:
    lib.cublasLtGetVersion.restype = ctypes.c_size_t
    n = int(lib.cublasLtGetVersion())
    return f"{n // 10000}.{n % 10000 // 100}.{n % 100}"


def _tensorrt(lib: Any) -> str:
    n = int(lib.getInferLibVersion())
    return f"{n // 10000}.{n % 10000 // 100}.{n % 100}" if n >= 10000 else f"{n // 1000}.{n % 1000 // 100}.{n % 100}"


CALLS: dict[str, Callable[[Any], str]] = {
    "cudart": _cudart,
    "cublas": _property("cublas"),
    "cublasLt": _cublaslt,
    "cudnn": _cudnn,
    "nccl": _nccl,
    "cufft": _property("cufft"),
    "curand": _property("curand"),
    "cusolver": _property("cusolver"),
    "cusparse": _property("cusparse"),
    "nvrtc": _pair("nvrtcVersion"),
    "nvjitlink": _pair("nvJitLinkVersion"),
    "tensorrt": _tensorrt,
}
"""Family → how to ask a library of it for its version."""


def versions_of(loaded: dict[str, list[str]]) -> tuple[dict[str, str], dict[str, str]]:
    """``(versions, unanswered)`` of the mapped libraries, by their own calls on the copies that are mapped."""
    versions, unanswered = {}, {}
    for family, paths in loaded.items():
        call = CALLS.get(family)
        if call is None:
            continue
        main = [
            p
            for p in paths
            if re.search(
                r"/lib(?:cudart|cublas|cublasLt|cudnn|nccl|cufft|curand|cusolver|"
                r"cusparse|nvrtc|nvJitLink|nvinfer)\.so",
                p,
            )
        ] or paths
        try:
            versions[family] = call(ctypes.CDLL(main[0]))
        except (OSError, AttributeError) as error:
            unanswered[family] = str(error)[:120]
    return versions, unanswered


PIN = re.compile(r"^\s*(nvidia-[a-z0-9-]+?)(?:-cu\d+)?\s*(?:\[.*?\])?\s*\(?==\s*([0-9][\w.]*)")
PIN_FAMILY = {"nvidia-cudnn": "cudnn", "nvidia-nccl": "nccl"}


def wheel_pins(distributions: tuple[str, ...]) -> dict[str, str]:
    """Exact pins of cuDNN and NCCL in the metadata of the framework's own distribution: what it declares."""
    from importlib import metadata

    pins: dict[str, str] = {}
    for distribution in distributions:
        try:
            lines = metadata.requires(distribution) or []
        except metadata.PackageNotFoundError:
            continue
        for line in lines:
            found = PIN.match(line.split(";")[0])
            if found and found.group(1) in PIN_FAMILY:
                pins[PIN_FAMILY[found.group(1)]] = found.group(2)
    return pins


@check(
    "triangle.loaded",
    title="CUDA libraries as loaded",
    proves="one version of every CUDA library meets in the process, and it is the one the framework declares",
    how="the framework multiplies, convolves and (where it can) runs a collective; then /proc/self/maps is read and "
    "each library asked by its own call (cudnnGetVersion, ncclGetVersion, cudaRuntimeGetVersion, cublasGetProperty …)",
    threshold="one copy per library, all of cuDNN from one folder; cuDNN and NCCL not older than the wheel's pins; "
    "cudart of the same major and not older than wheel_cuda",
    source="pytorch#188892, pytorch#185512 (mixed cuDNN), jaxlib-feedstock#329 (older than built)",
    needs=("gpu-framework",),
    timeout=180,
)
def triangle_loaded(ctx: Context) -> Outcome:
    from .environment import FRAMEWORK_PACKAGES

    adapter = ctx.adapter
    if not adapter.has("touch"):
        return not_applicable(f"{ctx.framework} has no operation to load its libraries with")
    done = adapter.touch(ctx)
    loaded = group_maps(read("/proc/self/maps", 64 << 20))
    versions, unanswered = versions_of(loaded)
    said = adapter.versions()
    pins = wheel_pins(FRAMEWORK_PACKAGES[str(ctx.framework)][1])
    declared = {
        "cudart": said.get("wheel_cuda"),
        "cudnn": pins.get("cudnn") or said.get("cudnn"),
        "nccl": pins.get("nccl") or said.get("nccl"),
    }
    measured: dict[str, Any] = {
        "did": done,
        "versions": versions,
        "unanswered": unanswered,
        "loaded": loaded,
        "image_says": _environment_versions(),
    }
    if not any(family in loaded for family in ("cudart", "cublas", "cublasLt", "cudnn", "nccl", "nvrtc")):
        if "cuda" not in loaded:
            return failed(
                f"{ctx.framework} worked without loading any CUDA library: it ran on the CPU",
                "a CPU-only build, or it fell back silently: see its own log",
                measured,
                {"declared": declared},
            )
        measured["note"] = "CUDA is linked into the framework's own libraries"
    problems, notes = loaded_problems(loaded, versions, declared)
    expected = {"declared": declared}
    if problems:
        return failed(
            "; ".join(p[0] for p in problems), "; ".join(dict.fromkeys(p[1] for p in problems)), measured, expected
        )
    return passed(measured, expected, "; ".join(notes) or None)


def _environment_versions() -> dict[str, str]:
    """What the image's own variables claim (NVIDIA's images set them); compared by eye, not judged."""
    import os

    names = ("CUDA_VERSION", "NV_CUDNN_VERSION", "NCCL_VERSION", "CUDNN_VERSION", "TRT_VERSION")
    return {name: os.environ[name] for name in names if os.environ.get(name)}


@check(
    "triangle.sm",
    title="Machine code for this card",
    proves="the framework's kernels exist for each visible GPU, as machine code or as PTX, measured in its libraries",
    how="the framework's own list, and a scan of the fat binaries in its shared libraries (largest first); targets "
    "that at least a quarter of the kernels have count",
    threshold="same major and minor not above the card's; exact for 'a' targets; else PTX not above it (pass, said so)",
    source="CUDA C++ programming guide, compute capabilities; pytorch#167244, vllm#19906",
    needs=("gpu-framework",),
    timeout=180,
)
def triangle_sm(ctx: Context) -> Outcome:
    adapter = ctx.adapter
    claimed = adapter.arch_list() if adapter.has("arch_list") else None
    scanned: dict[str, list[str]] = {}
    entries: dict[str, int] = {}
    budget = min(45.0, ctx.remaining() / 2)
    stop = time.monotonic() + budget
    for path in fatbin.libraries(adapter.library_dirs() if adapter.has("library_dirs") else [])[:12]:
        if time.monotonic() > stop:
            break
        counts = fatbin.scan_file(path, stop)
        if counts:
            scanned[path.name], entries[path.name] = common_code(counts), sum(counts.values())
    main = max(entries, key=lambda name: entries[name], default=None)
    code = list(dict.fromkeys([*(claimed or []), *(scanned.get(main, []) if main else [])]))
    measured: dict[str, Any] = {"claimed": claimed, "scanned": scanned, "entries": entries, "gpus": {}}
    if not code:
        return skipped("neither the framework nor its libraries tell which code they hold", measured)
    # What the framework lists without holding it does not count: measured beats claimed where both are known.
    basis = scanned[main] if main else code
    reasons, fixes = [], []
    for i, gpu in enumerate(ctx.gpus):
        capability = str(gpu.get("compute_capability"))
        how, by = coverage(capability, basis)
        measured["gpus"][str(i)] = {"compute_capability": capability, "runs": how, "by": by}
        if how == "none":
            reasons.append(f"GPU {i} is {capability}; the libraries hold {', '.join(basis)}")
            fixes.append("take a build for a newer (or older) wheel_cuda that lists this card: gpuimg resolve --gpu")
        elif how == "ptx":
            measured["note"] = "no machine code for this card: the driver compiles PTX at the first start (slow)"
        bare = [name for name, found in scanned.items() if coverage(capability, found)[0] == "none"]
        if bare:
            measured["gpus"][str(i)]["libraries_without"] = bare
    if reasons:
        return failed("; ".join(reasons), "; ".join(dict.fromkeys(fixes)), measured)
    return passed(measured, {}, measured.get("note"))


@check(
    "triangle.declared",
    title="Framework imports and says what it is",
    proves="the framework can be imported at all, and is the version that the package manager says",
    how="import in a fresh process; its own version against the package's metadata",
    threshold="imports without a known fault on its output; versions agree",
    source="measured: mindspore 2.10.0 with NumPy 2 prints a traceback at import and goes on",
    needs=("framework",),
    timeout=180,
)
def triangle_declared(ctx: Context) -> Outcome:
    said = ctx.adapter.versions()
    installed = str((ctx.facts.get("frameworks") or {}).get(ctx.framework))
    measured = {**said, "package": installed}
    own = str(said.get("framework"))
    if installed != "unknown" and numbers(own)[:3] != numbers(installed)[:3]:
        return failed(
            f"the module says {own}, the installed package {installed}",
            "two copies are installed, or the metadata is left over: pip uninstall it until none is left, install once",
            measured,
        )
    return passed(measured)
