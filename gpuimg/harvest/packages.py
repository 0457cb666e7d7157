"""Which packages are read, from which version on, and what inside their wheels says what they were built for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class PackageSpec:
    """How one package is read.

    ``depth``: 'index' = file names only, 'metadata' = plus Requires-Dist, 'wheel' = plus members of the wheel,
    'sdist' = metadata of the source archive.
    """

    name: str
    since: str
    depth: Literal["index", "metadata", "wheel", "sdist"] = "index"
    texts: tuple[str, ...] = ()
    """Members (regular expressions) read as text."""
    names: str | None = None
    """Member names kept, as facts in themselves."""
    arch_string: str | None = None
    """Member that holds torch.cuda.get_arch_list() as a string."""
    fatbin: tuple[str, ...] = ()
    """Members scanned for code, first match wins; a second choice when ``arch_string`` finds nothing."""
    fatbin_limit: int = 48 << 20
    """Compressed bytes at most."""
    containers: int = 60
    """Enough containers to stop."""
    machines: tuple[str, ...] = ("x86_64", "aarch64")
    prereleases: tuple[str, ...] = ()
    """Pre-releases that are read all the same."""
    extras: tuple[str, ...] = field(default=())


PACKAGES: tuple[PackageSpec, ...] = (
    PackageSpec(
        "torch",
        "1.0",
        "wheel",
        texts=(r"^torch/version\.py$",),
        arch_string=r"^torch/lib/libtorch_python\.so$",
        fatbin=(
            r"^torch/lib/libtorch_cuda\.so$",
            r"^torch/lib/libtorch_cuda_cu\.so$",
            r"^torch/lib/libcaffe2_gpu\.so$",
            r"^torch/lib/libtorch\.so(\.1)?$",
        ),
        fatbin_limit=160 << 20,
        containers=40,
    ),
    PackageSpec("torchvision", "0.2.2", "metadata"),
    PackageSpec("torchaudio", "0.3", "metadata"),
    PackageSpec("torchtext", "0.4", "metadata", machines=("x86_64",)),
    PackageSpec("triton", "1.0", "metadata"),
    PackageSpec("xformers", "0.0.13", "wheel", texts=(r"cpp_lib\.json$",), machines=("x86_64",)),
    PackageSpec("bitsandbytes", "0.35", "wheel", names=r"libbitsandbytes_cuda\d+", machines=("x86_64",)),
    PackageSpec("flash-attn", "1.0", "index"),
    PackageSpec("tensorflow", "1.4", "wheel", texts=(r"python/platform/build_info\.py$",)),
    PackageSpec("tensorflow-gpu", "1.4", "wheel", texts=(r"python/platform/build_info\.py$",), machines=("x86_64",)),
    PackageSpec("tensorflow-cpu", "1.15", "index"),
    PackageSpec("keras", "2.2", "index"),
    PackageSpec("tf-keras", "2.14", "index"),
    PackageSpec("jax", "0.4.1", "metadata"),
    PackageSpec("jaxlib", "0.1.60", "index"),
    PackageSpec(
        "jax-cuda12-plugin", "0.4.14", "wheel", fatbin=(r"/_prng\.so$",), containers=1000, machines=("x86_64",)
    ),
    PackageSpec("jax-cuda13-plugin", "0.7.2", "wheel", fatbin=(r"/_prng\.so$",), containers=1000, machines=("x86_64",)),
    PackageSpec(
        "vllm",
        "0.0.1",
        "wheel",
        names=r"^vllm/(_C|_moe_C|cuda_utils|attention_ops|vllm_flash_attn/_vllm_fa)[^/]*\.so$",
        fatbin=(
            r"^vllm/_C_stable[^/]*\.so$",
            r"^vllm/_C\.[^/]*\.so$",
            r"^vllm/attention_ops[^/]*\.so$",
        ),
        fatbin_limit=16 << 20,
        containers=40,
        machines=("x86_64", "aarch64"),
    ),
    PackageSpec("sglang", "0.3", "metadata", machines=("x86_64",), extras=("srt",)),
    PackageSpec("sgl-kernel", "0.0.2", "metadata", machines=("x86_64",)),
    PackageSpec("flashinfer-python", "0.2", "metadata", machines=("x86_64",)),
    PackageSpec("tensorrt-llm", "0.5", "sdist", prereleases=("1.4.0rc1",)),
    PackageSpec("tensorrt", "8.5", "index"),
    PackageSpec("tensorrt-cu12", "10.0", "index"),
    PackageSpec("tensorrt-cu13", "10.13", "index"),
    PackageSpec(
        "onnxruntime-gpu",
        "0.4",
        "wheel",
        texts=(r"capi/build_and_package_info\.py$",),
        fatbin=(r"capi/libonnxruntime_providers_cuda\.so$", r"capi/onnxruntime_pybind11_state[^/]*\.so$"),
        fatbin_limit=28 << 20,
        containers=40,
    ),
    PackageSpec(
        "paddlepaddle-gpu",
        "1.8",
        "wheel",
        texts=(r"^paddle/version(/__init__)?\.py$",),
        fatbin=(r"libs/libphi\.so$", r"base/libpaddle\.so$", r"fluid/libpaddle\.so$", r"fluid/core_avx\.so$"),
        fatbin_limit=64 << 20,
        containers=12,
        machines=("x86_64",),
    ),
    PackageSpec("paddlepaddle", "1.8", "index"),
    PackageSpec(
        "mindspore",
        "1.0",
        "wheel",
        texts=(r"run_check/_check_version\.py$",),
        names=r"libmindspore_gpu\.so\.[\d.]+$",
        machines=("x86_64",),
    ),
    PackageSpec(
        "mindspore-gpu",
        "1.0",
        "wheel",
        texts=(r"run_check/_check_version\.py$",),
        names=r"libmindspore_gpu\.so\.[\d.]+$",
        machines=("x86_64",),
    ),
    *(
        PackageSpec(f"cupy-cuda{cuda}", since, "wheel", texts=(r"_wheel\.json$",), machines=("x86_64",))
        for cuda, since in (
            ("90", "6.0"),
            ("92", "6.0"),
            ("100", "6.0"),
            ("101", "6.0"),
            ("102", "7.0"),
            ("110", "8.0"),
            ("111", "8.0"),
            ("112", "9.0"),
            ("113", "9.0"),
            ("114", "9.0"),
            ("115", "10.0"),
            ("116", "10.0"),
            ("117", "10.0"),
            ("11x", "11.0"),
            ("12x", "12.0"),
            ("13x", "13.6"),
        )
    ),
    PackageSpec("ctranslate2", "2.0", "index"),
    PackageSpec("faster-whisper", "0.1", "metadata", machines=("x86_64",)),
    PackageSpec("llama-cpp-python", "0.1.50", "index"),
    PackageSpec("deepspeed", "0.5", "index"),
    PackageSpec("numba", "0.45", "metadata", machines=("x86_64",)),
    PackageSpec("dgl", "0.6", "metadata", machines=("x86_64",)),
    PackageSpec("mmcv", "2.0", "index"),
    PackageSpec("mmcv-full", "1.0", "index"),
    PackageSpec("numpy", "1.14", "index"),
    PackageSpec("scipy", "1.2", "index"),
    PackageSpec("nvidia-cudnn-cu11", "8.0", "index"),
    PackageSpec("nvidia-cudnn-cu12", "8.0", "index"),
    PackageSpec("nvidia-cudnn-cu13", "9.0", "index"),
    PackageSpec("nvidia-nccl-cu11", "2.0", "index"),
    PackageSpec("nvidia-nccl-cu12", "2.0", "index"),
    PackageSpec("nvidia-nccl-cu13", "2.0", "index"),
    PackageSpec("nvidia-cuda-runtime-cu11", "11.0", "index"),
    PackageSpec("nvidia-cuda-runtime-cu12", "12.0", "index"),
    PackageSpec("nvidia-cuda-runtime", "13.0", "index"),
    PackageSpec("nvidia-cublas-cu11", "11.0", "index"),
    PackageSpec("nvidia-cublas-cu12", "12.0", "index"),
    PackageSpec("cuda-toolkit", "11.0", "metadata", machines=("x86_64",)),
)

BY_NAME = {spec.name: spec for spec in PACKAGES}
