"""One build, one situation, one card: which rules speak. The rules themselves live in ``rules``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from gpuimg.knowledge.base import Knowledge, version_key
from gpuimg.knowledge.gpunames import Card
from gpuimg.knowledge.images import ImageFacts
from gpuimg.knowledge.require import BRAND_NAMES, Facts, holds
from gpuimg.knowledge.require import SOURCE as REQUIRE_SOURCE
from gpuimg.knowledge.rules.cudnn import judge_cudnn_card
from gpuimg.knowledge.rules.driver import (
    DriverFacts,
    branch_of,
    is_native,
    judge_card_driver,
    judge_driver,
    newest_cuda,
)
from gpuimg.knowledge.rules.engines import judge_limits
from gpuimg.knowledge.rules.numbers import code_target, minor, parts
from gpuimg.knowledge.rules.one_cuda import judge_base_cuda, judge_base_cudnn
from gpuimg.knowledge.rules.outcome import Outcome, outcome
from gpuimg.knowledge.rules.sm import GUIDE, TEGRA, judge_sm, toolkit_knows
from gpuimg.knowledge.rules.wheel import judge_glibc, judge_index, judge_python
from gpuimg.knowledge.selection import cuda_of, describe
from gpuimg.knowledge.situation import Situation, Wanted
from gpuimg.knowledge.tables import Build

NO_GPU_CODE = frozenset({
    "numpy", "scipy", "numba", "keras", "tf-keras", "torchvision", "torchaudio", "torchtext", "triton", "cuda-toolkit",
    "nvidia-nccl-cu11", "nvidia-nccl-cu12", "nvidia-nccl-cu13", "nvidia-cuda-runtime", "nvidia-cuda-runtime-cu11",
    "nvidia-cuda-runtime-cu12", "nvidia-cublas-cu11", "nvidia-cublas-cu12", "nvidia-cudnn-cu11", "nvidia-cudnn-cu12",
    "nvidia-cudnn-cu13", "sglang", "deepspeed", "faster-whisper", "mmcv", "mmcv-full", "detectron2", "dgl",
})  # fmt: skip
"""Packages whose own SM list is not what decides: libraries for every card, or extensions that follow torch."""
NEUTRAL = frozenset({"numpy", "scipy", "numba", "keras", "tf-keras"})
"""Packages without GPU code."""
BUILT_FOR_ALL = (
    "cupy-", "ctranslate2", "onnxruntime-gpu", "paddlepaddle-gpu", "tensorflow", "jax", "tensorrt", "bitsandbytes",
    "sglang",
    "tensorrt-llm", "llama-cpp-python", "flashinfer-python", "sgl-kernel", "xformers", "dgl", "mindspore",
)  # fmt: skip
"""Publishers who build for every architecture their toolkit knows (their build scripts), where no list was measured."""


@dataclass(frozen=True)
class Evaluation:
    """A build judged: what holds whatever the card, and what each card adds."""

    wanted: Wanted
    build: Build
    general: tuple[Outcome, ...]
    cards: tuple[tuple[Outcome, ...], ...]

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        return (*self.general, *(o for card in self.cards for o in card))


def measured_sm(build: Build, knowledge: Knowledge) -> tuple[tuple[str, ...] | None, str]:
    """The build's SM list and where it is from: its own, or that of the same version's other build, cut to its
    toolkit."""
    if build.sm is not None:
        return build.sm, build.source or GUIDE
    return _joined_sm(build.framework, build.version, build.machine, build.wheel_cuda, knowledge)


@lru_cache(maxsize=4096)
def _joined_sm(
    framework: str, version: str, machine: str, cuda: str | None, knowledge: Knowledge
) -> tuple[tuple[str, ...] | None, str]:
    public = version_key(version).public.split(".post")[0]
    for other in (*knowledge.builds(framework, version), *knowledge.builds(framework, public)):
        if other.sm is None or other.machine != machine or other.wheel_cuda is None or cuda is None:
            continue
        if parts(other.wheel_cuda) < parts(minor(cuda)):
            continue
        kept = tuple(s for s in other.sm if (t := code_target(s)) and toolkit_knows(f"{t[1]}.{t[2]}", cuda, knowledge))
        if kept:
            return kept, f"joined: {describe(other)} of the same version, cut to what CUDA {cuda} knows"
    return None, GUIDE


def is_gpu(build: Build) -> bool:
    """Does the build want a GPU at all?"""
    return build.framework not in NEUTRAL and build.device != "cpu"


def judge_general(wanted: Wanted, build: Build, situation: Situation, knowledge: Knowledge) -> tuple[Outcome, ...]:
    """Rules that do not depend on the card: Python, glibc, index, CPU-only, base CUDA, source-only packages."""
    subject, made = describe(build), []
    installed = wanted.origin == "image"
    source = build.source or "https://pypi.org/simple"
    if not installed:
        own = _python(wanted, build, situation, subject, source)
        if own is not None:
            made.append(own)
        if build.framework not in NEUTRAL or situation.glibc == "0":
            found = judge_glibc(build, situation.glibc, subject=subject, where=situation.glibc_where, source=source)
            if found is not None:
                made.append(found)
        elsewhere = build.index not in {"pypi", "none"} and not build.default
        if build.index == "github" and not wanted.requirement.local:
            elsewhere = False  # its setup fetches the released wheel itself
        if wanted.origin == "file" and elsewhere and not wanted.requirement.url:
            made.append(judge_index(build, situation.index_urls, subject=subject, file=wanted.requirement.file))
        made.extend(_odd(build, subject))
    if not build.bundles_cuda and build.device != "cpu" and not installed:
        made.extend(_system_cuda(build, situation, subject))
    return tuple(made)


def _python(wanted: Wanted, build: Build, situation: Situation, subject: str, source: str) -> Outcome | None:
    own = build
    if build.framework in NEUTRAL:
        return None
    if situation.python is None and situation.python_range and build.pythons:
        if any(situation.allows_python(p) for p in build.pythons):
            return None
        return outcome(
            "python",
            "no",
            f"{subject} has wheels for Python {', '.join(build.pythons)}; the project wants {situation.python_range}",
            source,
        )
    made = judge_python(own, situation.python, subject=subject, source=source, soft=situation.python_soft)
    if made is not None and made.finding.verdict == "no" and wanted.origin == "conda":
        return None
    return made


def _odd(build: Build, subject: str) -> list[Outcome]:
    """Source-only and removed packages, conda leftovers, ROCm builds."""
    notes = " ".join(build.notes)
    if "removed package" in notes:
        return [outcome("wheel", "no", f"{subject}: {notes}", build.source, fix="install tensorflow instead")]
    if "ROCm" in notes:
        return [outcome("wheel", "no", f"{subject} is a ROCm build: AMD cards only", build.source)]
    if build.index == "none" and build.device != "cpu":
        return [outcome("wheel", "warn", f"{subject}: {notes or 'no wheel on PyPI'}", build.source)]
    return []


def _system_cuda(build: Build, situation: Situation, subject: str) -> list[Outcome]:
    """A system-linked wheel and the CUDA it will find: the base's, the host's on a bare machine, or the one we
    choose."""
    base = situation.base
    wheels = [w for w in situation.wanted if w.name.startswith(("nvidia-cudnn-cu", "nvidia-cuda-runtime"))]
    torch = any(w.name == "torch" for w in situation.wanted)
    if base is not None and base.kind not in {"unknown"} and situation.runtime != "bare":
        if base.base_cuda is None and (wheels or torch or base.kind == "third-party"):
            why = (
                "wheels of NVIDIA's libraries"
                if wheels
                else "torch's own libraries"
                if torch
                else "the image's own libraries"
            )
            return [
                outcome("one-cuda", "warn", f"{subject} takes CUDA from outside: {why} must serve it", build.source)
            ]
        made = judge_base_cuda(
            build,
            base.base_cuda,
            subject=subject,
            where=base.reference,
            flavour=base.flavour if base.kind == "cuda" else None,
        )
        cudnn = judge_base_cudnn(build, base.cudnn, subject=subject, where=base.reference)
        return [*made, *([cudnn] if cudnn else [])]
    if situation.runtime == "bare" and base is None:
        if situation.toolkit:
            made = judge_base_cuda(build, situation.toolkit, subject=subject, where="the host", flavour=None)
            cudnn = judge_base_cudnn(build, situation.host_cudnn, subject=subject, where="the host")
            return [*made, *([cudnn] if cudnn else [])]
        return [
            outcome(
                "one-cuda",
                "unknown",
                f"{subject} takes CUDA {build.wheel_cuda or ''} and cuDNN {build.cudnn or ''} from the host; "
                "what the host has is not given (the driver's CUDA Version is no toolkit)",
                build.source,
                missing=("toolkit",),
            )
        ]
    return []


def judge_card(
    build: Build, card: Card, capability: str, situation: Situation, knowledge: Knowledge, *, installed: bool = False
) -> tuple[Outcome, ...]:
    """Rules about one card of known compute capability: code, driver, cuDNN, engine limits."""
    subject, gpu = describe(build), card.name
    made: list[Outcome] = []
    cuda = cuda_of(build)
    if build.device == "cpu":
        if build.framework in NEUTRAL:
            return ()
        return (_cpu_only(build, subject, gpu),)
    if build.framework in NEUTRAL:
        return ()
    made.extend(judge_limits(build.framework, build.version, capability, knowledge, gpu=gpu))
    if (
        capability in TEGRA
        and build.index in {"pypi", "pytorch"}
        and build.framework in {"torch", "tensorflow", "jax", "vllm"}
    ):
        made.append(
            outcome(
                "jetson",
                "no",
                f"{subject} is for servers (SBSA); a Jetson with compute capability {capability} needs NVIDIA's own "
                "Jetson wheels or l4t images",
                "https://docs.nvidia.com/deeplearning/frameworks/install-pytorch-jetson-platform/",
                gpu=gpu,
                fix="use nvcr.io/nvidia/l4t-pytorch or the wheels of pypi.jetson-ai-lab.io",
            )
        )
    native = is_native(cuda, situation.driver, knowledge) if cuda else None
    if build.framework not in NO_GPU_CODE:
        made.append(_code(build, capability, cuda, native, knowledge, subject, gpu))
    elif (
        build.framework.startswith(("nvidia-cublas", "nvidia-cudnn", "cuda-toolkit"))
        and cuda
        and toolkit_knows(capability, cuda, knowledge) is False
    ):
        made.append(
            outcome(
                "sm", "no", f"{subject}: CUDA {cuda} has no code for compute capability {capability}", GUIDE, gpu=gpu
            )
        )
    if cuda is not None:
        made.append(
            judge_driver(
                cuda,
                situation.driver,
                knowledge,
                subject=f"{subject}, CUDA {cuda} (wheel_cuda),",
                gpu=gpu,
                data_centre=_forward_card(card),
                forward=situation.forward,
            )
        )
    if build.bundles_cuda or build.framework.startswith("nvidia-cudnn"):
        found = judge_cudnn_card(build.cudnn, capability, knowledge, subject=subject, gpu=gpu)
        if found is not None:
            made.append(found)
    return tuple(made)


def _cpu_only(build: Build, subject: str, gpu: str) -> Outcome:
    note = "; ".join(n for n in build.notes if "CPU" in n)
    fix = {"jax": "jax[cuda12] or jax[cuda13]", "torch": "a +cuXXX build from download.pytorch.org"}.get(
        build.framework
    )
    return outcome(
        "cpu-only",
        "no",
        f"{subject} for {build.machine} is a CPU-only build: it never uses the GPU" + (f" ({note})" if note else ""),
        build.source,
        gpu=gpu,
        fix=fix,
    )


def _code(
    build: Build, capability: str, cuda: str | None, native: bool | None, knowledge: Knowledge, subject: str, gpu: str
) -> Outcome:
    sm, source = measured_sm(build, knowledge)
    if sm is None and build.device == "cuda" and any("source only" in n for n in build.notes):
        return outcome(
            "sm",
            "warn",
            f"{subject} is compiled at install, for the cards it finds or TORCH_CUDA_ARCH_LIST: it needs "
            "nvcc of torch's CUDA",
            build.source or GUIDE,
            gpu=gpu,
        )
    follows = build.framework == "jax" and build.bundles_cuda
    if sm is None and build.framework.startswith(BUILT_FOR_ALL):
        known = toolkit_knows(capability, cuda, knowledge) if cuda else None
        if known and parts(capability) >= (5, 0):
            return outcome(
                "sm",
                "warn",
                f"{subject}: its SM list is not measured; it is built for every card CUDA {cuda} knows, and that knows "
                f"compute capability {capability}",
                build.source or GUIDE,
                gpu=gpu,
            )
        if build.framework.startswith("cupy") and known is None:
            return outcome(
                "sm", "warn", f"{subject} compiles its kernels on the machine", build.source or GUIDE, gpu=gpu
            )
    made = judge_sm(
        capability,
        sm,
        cuda,
        knowledge,
        subject=subject,
        native=native,
        libraries_follow=follows,
        gpu=gpu,
        source=source,
    )
    joined = build.sm is None and sm is not None
    if joined and made.finding.verdict == "no" and toolkit_knows(capability, cuda or "0.0", knowledge):
        return replace(
            made, finding=replace(made.finding, verdict="unknown"), missing=("sm list of the build",), mode="native"
        )
    return made


def judge_base_for_card(
    base: ImageFacts, card: Card, capability: str | None, situation: Situation, knowledge: Knowledge, *, bundled: bool
) -> tuple[Outcome, ...]:
    """The image itself and one card: its REQUIRE, its toolkit's reach, its driver.

    ``bundled``: everything asked brings its own CUDA, so the base's libraries are not used.
    """
    made: list[Outcome] = []
    where, gpu = base.reference, card.name
    if base.kind == "jetson" and capability not in TEGRA | {"11.0"} and capability is not None:
        made.append(outcome("jetson", "no", f"{where} runs on Jetson boards only", base.source or where, gpu=gpu))
    cuda = base.base_cuda
    if base.cpu_only:
        made.append(
            outcome(
                "cpu-only", "no", f"{where} is a CPU-only image: it never uses the GPU", base.source or where, gpu=gpu
            )
        )
    if cuda is None:
        return tuple(made)
    if base.kind == "ngc":
        made.extend(_ngc(base, card, capability, situation, knowledge))
        return tuple(made)
    if capability is not None and not bundled and toolkit_knows(capability, cuda, knowledge) is False:
        arch = next((a.name for a in knowledge.architectures if a.compute_capability == capability), "")
        made.append(
            outcome(
                "sm",
                "no",
                f"{where}: CUDA {cuda} (base_cuda) has no code for compute capability {capability} ({arch}), "
                f"sm_{capability.replace('.', '')}: its libraries and whatever it compiles do not run there",
                GUIDE,
                gpu=gpu,
            )
        )
    if not bundled:
        made.append(
            judge_driver(
                cuda,
                situation.driver,
                knowledge,
                subject=f"{where}, CUDA {cuda} (base_cuda),",
                gpu=gpu,
                data_centre=_forward_card(card),
                forward=situation.forward,
                rule="base-driver",
            )
        )
    if base.require and situation.runtime != "bare":
        found = _require(base, card, capability, situation, knowledge)
        if found is not None:
            made.append(found)
    return tuple(made)


def _ngc(
    base: ImageFacts, card: Card, capability: str | None, situation: Situation, knowledge: Knowledge
) -> list[Outcome]:
    """NVIDIA's own framework images: their own builds, cuda-compat inside."""
    assert base.base_cuda is not None
    where, gpu, made = base.reference, card.name, []
    if capability is not None:
        low = base.cc_min is not None and parts(capability) < parts(base.cc_min)
        known = toolkit_knows(capability, base.base_cuda, knowledge)
        if low or known is False:
            made.append(
                outcome(
                    "sm",
                    "no",
                    f"{where} is built with CUDA {base.base_cuda} (base_cuda) for compute capability "
                    f"{base.cc_min or '?'} and newer as far as that toolkit knows; {capability}, "
                    f"sm_{capability.replace('.', '')}, is outside",
                    base.source,
                    gpu=gpu,
                )
            )
        else:
            made.append(
                outcome(
                    "sm",
                    "yes",
                    f"{where}: CUDA {base.base_cuda} and its builds cover {capability}",
                    base.source,
                    gpu=gpu,
                )
            )
    made.append(
        judge_driver(
            base.base_cuda,
            situation.driver,
            knowledge,
            subject=f"{where}, CUDA {base.base_cuda} (base_cuda),",
            gpu=gpu,
            data_centre=_forward_card(card),
            forward=situation.forward,
            rule="base-driver",
        )
    )
    return made


def _require(
    base: ImageFacts, card: Card, capability: str | None, situation: Situation, knowledge: Knowledge
) -> Outcome | None:
    assert base.require is not None
    driver = situation.driver
    if not driver.known:
        return None
    version = driver.version if not driver.windows else None
    if version is None:
        branch = branch_of(driver, knowledge)
        version = f"{branch}.0" if branch else None
    facts = Facts(newest_cuda(driver, knowledge), version, capability, card.brand)
    answer = holds(base.require, facts)
    if answer is None and card.brand is None:
        answers = {holds(base.require, replace(facts, brand=b)) for b in BRAND_NAMES}
        answer = answers.pop() if len(answers) == 1 else None
    first = base.require.split()[0]
    text = (
        f"{base.reference} asks {first} or one of its listed branches (NVIDIA_REQUIRE_CUDA); {driver.text}, "
        f"brand {card.brand}"
    )
    if answer:
        return outcome("require", "yes", f"{text}: met", REQUIRE_SOURCE, gpu=card.name)
    if answer is None:
        return outcome(
            "require",
            "unknown",
            f"{text}: the card's brand would decide",
            REQUIRE_SOURCE,
            gpu=card.name,
            missing=("gpu",),
        )
    native = knowledge.first_driver(base.base_cuda or "")
    if situation.cdi:
        return outcome(
            "require",
            "warn",
            f"{text}: not met, but this runtime uses CDI, which does not evaluate it",
            REQUIRE_SOURCE,
            gpu=card.name,
            mode="compat",
        )
    return outcome(
        "require",
        "no",
        f"{text}: not met, the container is refused (unsatisfied condition: {first})",
        REQUIRE_SOURCE,
        gpu=card.name,
        fix=f"a driver ≥ {native}, an older or plain distribution base, or NVIDIA_DISABLE_REQUIRE=1 where minor-version"
        " "
        "compatibility carries it",
    )


def judge_base(base: ImageFacts, situation: Situation, knowledge: Knowledge) -> list[Outcome]:
    """The image whatever the card: withdrawn tags, ended distributions, ROCm, musl, unreadable references."""
    made: list[Outcome] = []
    where = base.reference
    if base.kind == "rocm":
        made.append(outcome("image", "no", f"{where} is a ROCm image: for AMD cards only", base.source or where))
    if base.deleted:
        made.append(
            outcome(
                "deleted-tag",
                "warn",
                f"{where} was withdrawn from the registry: it only runs where a copy is kept",
                base.source,
                fix="use a tag that is still published",
            )
        )
    if base.end_of_life and base.os and base.end_of_life < knowledge.date:
        made.append(
            outcome(
                "end-of-life",
                "warn",
                f"{base.os} gets no free updates since {base.end_of_life}",
                "distribution life cycle",
            )
        )
    if base.problem and not base.frameworks and base.base_cuda is None:
        made.append(
            outcome("image", "unknown" if not situation.wanted else "warn", base.problem, where, missing=("base",))
        )
    return made


def judge_server(card: Card, capability: str | None, driver: DriverFacts, knowledge: Knowledge) -> list[Outcome]:
    """A card and the driver, whatever is to run: not NVIDIA, not drivable."""
    if card.foreign is not None:
        return [
            outcome(
                "gpu",
                "no",
                f"{card.text} is not an NVIDIA card: {card.foreign}",
                "https://developer.nvidia.com/cuda-gpus",
                gpu=card.name,
                fix="use that vendor's own builds",
            )
        ]
    if capability is None:
        return []
    found = judge_card_driver(capability, driver, knowledge, gpu=card.name)
    return [found] if found else []


def candidates_of(card: Card, knowledge: Knowledge) -> Sequence[str]:
    """Compute capabilities the card may have: one when known, several when its name is ambiguous, none when unknown."""
    if card.compute_capability:
        return (card.compute_capability,)
    wanted = set(card.models)
    return tuple(dict.fromkeys(m.compute_capability for m in knowledge.gpus if m.name in wanted))


def _forward_card(card: Card) -> bool | None:
    """Is forward compatibility supported on the card? None: not known, or an RTX board (only NGC-ready servers)."""
    if card.data_centre is False and card.brand in {"nvidiartx", "quadrortx"}:
        return None
    return card.data_centre
