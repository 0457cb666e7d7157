"""The shapes of what the knowledge base holds. Rows come from ``data/``; every row names its source.

Confidence of a value, best first (``how``): ``embedded`` in the wheel > ``pin`` (exact) > ``joined`` through a pin >
``range`` > ``soname`` > ``docs``. Unknown stays None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Device = Literal["cuda", "cpu"]


@dataclass(frozen=True)
class Build:
    """One published build of one framework release: what pip gets from one index for one machine type.

    torch 2.5.1 has several: PyPI's (wheel_cuda 12.4), PyTorch's own cu118, cu121, cu124 and cpu, and aarch64 ones.
    """

    framework: str
    """PyPI name in normal form: torch, tensorflow, tensorflow-gpu, jax, paddlepaddle-gpu, vllm …"""
    version: str
    """Public version, without the local label."""
    machine: str
    """x86_64 or aarch64."""
    device: Device | None
    """None when it is not known whether the build holds GPU code."""
    wheel_cuda: str | None
    """'12.4', or '12' when only the major is known; None for CPU builds or when unknown."""
    index: str
    """'pypi', 'pytorch', 'paddle', 'vllm', 'nvidia', 'jax', 'conda', 'none' (source only)."""
    index_url: str | None = None
    """None for PyPI."""
    local: str | None = None
    """Local label that selects this build: cu124, cpu, post112."""
    extra: str | None = None
    """Extra that selects it: jax[cuda12], tensorflow[and-cuda]."""
    default: bool = False
    """True when a bare ``pip install NAME==VERSION`` on Linux gets it."""
    pythons: tuple[str, ...] | None = None
    """('3.9', …) for which a wheel exists; None when unknown."""
    glibc: str | None = None
    """Oldest glibc of the wheel's manylinux tag; None when unknown."""
    cudnn: str | None = None
    """Exact ('9.1.0.70'), major ('8') or range ('>=9.8,<10')."""
    nccl: str | None = None
    sm: tuple[str, ...] | None = None
    """Code in the binary: 'sm_80' is SASS, 'compute_80' PTX, 'sm_90a' architecture-specific. None when not measured."""
    cxx11_abi: bool | None = None
    """C++ ABI of libtorch in the wheel; extensions (flash-attn …TRUE/…FALSE file names) must match. None: not known."""
    bundles_cuda: bool = True
    """False when CUDA and cuDNN must come from the base image or the host."""
    cuda_builds: tuple[str, ...] = ()
    """CUDA versions a wheel with several builds inside serves (bitsandbytes, mindspore); wheel_cuda is the newest."""
    requires: tuple[str, ...] = ()
    """PEP 508 pins that matter here: torch==2.5.1, numpy<2, triton==3.1.0 …"""
    requires_python: str | None = None
    released: str | None = None
    size_mib: int | None = None
    yanked: bool = False
    notes: tuple[str, ...] = ()
    how: Mapping[str, str] = field(default_factory=dict)
    """Field name → how the value was obtained."""
    source: str = ""


@dataclass(frozen=True)
class GpuModel:
    """A card as nvidia-smi names it. Bandwidth in GB/s, rates in dense TFLOP/s, memory in MiB, power in W."""

    name: str
    compute_capability: str
    architecture: str
    memory_mib: int | None
    data_centre: bool
    """Forward compatibility (cuda-compat) is supported on data-centre cards, NGC-ready RTX boards and Jetson only."""
    brand: str
    """As NVIDIA_REQUIRE_CUDA spells it: tesla, geforce, titan, quadro, quadrortx, nvidiartx, nvidia, unknown …"""
    pci_ids: tuple[str, ...] = ()
    mem_bw_gbs: float | None = None
    tensor16_tflops: float | None = None
    bf16: bool | None = None
    fp8: bool | None = None
    nvlink: str | None = None
    nvlink_gbs: float | None = None
    """One direction, per GPU."""
    pcie_gen: int | None = None
    power_w: int | None = None
    sm_count: int | None = None
    min_mem_bw_gbs: float | None = None
    """Published fail-below of DCGM."""
    measured_matmul_tflops: float | None = None
    busbw: Mapping[str, object] | None = None
    aliases: tuple[str, ...] = ()
    """Ways people write it: '4090', 'RTX4090'."""
    source: str = ""


@dataclass(frozen=True)
class Toolkit:
    """A CUDA toolkit release and the driver it shipped with (not the floor to run; see minor-version rules)."""

    version: str
    driver_linux: str | None
    driver_windows: str | None
    source: str


@dataclass(frozen=True)
class Architecture:
    """A compute capability: when toolkits and driver branches began and stopped to know it. 'R580' style branches."""

    compute_capability: str
    name: str
    first_toolkit: str | None
    last_toolkit: str | None
    first_driver_branch: str | None
    last_driver_branch: str | None
    source: str


@dataclass(frozen=True)
class BaseTag:
    """A tag of nvidia/cuda (or another known base): what its config says, not what its name looks like."""

    repository: str
    tag: str
    base_cuda: str
    flavour: str
    os: str
    cudnn: str | None
    require: str | None
    """Its NVIDIA_REQUIRE_CUDA, as written."""
    compat_package: bool
    deleted: bool
    end_of_life: str | None
    """ISO date, 'unsupported' when the publisher no longer updates the tag, None while it does."""
    source: str


@dataclass(frozen=True)
class ForwardCompat:
    """May a ``cuda-compat`` package of ``toolkit`` run on the kernel driver branch ``branch``? Data-centre cards only.

    ``state``: 'supported', 'native' (the branch's own CUDA: no package needed) or 'unsupported'.
    """

    toolkit: str
    branch: str
    state: Literal["supported", "native", "unsupported"]
    source: str


@dataclass(frozen=True)
class CudnnSupport:
    """What a range of cuDNN versions supports. ``cc`` is NVIDIA's list, empty when only a floor is known."""

    cudnn: str
    """PEP 440 specifier: '>=8.9.5,<8.9.8'."""
    cuda: tuple[str, ...]
    """Specifiers of the CUDA toolkits it is built for: '>=12.0,<=12.9', '==11.8'."""
    cc_min: str
    cc: tuple[str, ...]
    driver_min: Mapping[str, str]
    """CUDA major ('12') or 'blackwell' → Linux driver."""
    notes: tuple[str, ...]
    source: str


@dataclass(frozen=True)
class OsRelease:
    """A Linux release used as a base. ``end_of_life`` is the end of free public updates (ISO date)."""

    id: str
    """'ubuntu22.04', 'debian12', 'centos7', 'rockylinux8' …, as in image tags."""
    glibc: str
    python: str | None
    """python3 of the distribution; None when it has none by default."""
    end_of_life: str | None
    pep668: bool
    """True when system pip refuses to install outside a virtual environment."""
    aliases: tuple[str, ...]
    source: str


@dataclass(frozen=True)
class KnownImage:
    """A public image with frameworks in it, as its publisher describes it."""

    repository: str
    tag: str
    base_cuda: str | None
    frameworks: Mapping[str, str]
    """Framework → public version."""
    python: str | None
    os: str | None
    min_driver: str | None
    """What the publisher states as the driver it was made for."""
    sm: tuple[str, ...] | None
    cc_min: str | None
    cudnn: str | None
    end_of_life: str | None
    notes: tuple[str, ...]
    source: str


@dataclass(frozen=True)
class EngineLimit:
    """What an engine or a feature of it needs of the card, beyond having code for it."""

    package: str
    versions: str
    """PEP 440 specifier; '' for all."""
    feature: str | None
    """None: the package as a whole; else 'bf16', 'fp8', 'flash-attention', 'awq', 'marlin' …"""
    cc_min: str | None
    cc_max: str | None
    hard: bool
    """True: does not start or fails; False: slower, or falls back."""
    why: str
    source: str


@dataclass(frozen=True)
class Removed:
    """A package name or range of versions that pip cannot give a working GPU install of."""

    package: str
    versions: str
    why: str
    instead: str
    source: str


@dataclass(frozen=True)
class Conflict:
    """A place where sources disagree, and what the tables follow."""

    subject: str
    versions: str
    says: Mapping[str, str]
    """Source → its claim."""
    right: str
    why: str
    state: Literal["resolved", "marked"]
    """'marked': a fact about the world that stays contradictory (a release that cannot be installed as declared)."""
    source: str
