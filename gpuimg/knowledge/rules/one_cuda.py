"""One CUDA in an image: system-linked wheels take CUDA and cuDNN from the base (or the host), and it must be theirs.

Sonames decide: below CUDA 11 they name the minor (libcudart.so.10.1), from 11 on the major (libcublas.so.12), so
any 12.x
serves a 12.x build. Paddle compares its compiled CUDA with the loaded one itself; MindSpore has one plugin for
each CUDA.
"""

from __future__ import annotations

from packaging.version import Version

from gpuimg.knowledge.base import version_key
from gpuimg.knowledge.rules.cudnn import judge_cudnn_loaded, lowest
from gpuimg.knowledge.rules.numbers import at_least, major, minor, parts
from gpuimg.knowledge.rules.outcome import Outcome, outcome
from gpuimg.knowledge.tables import Build

SONAMES = "https://docs.nvidia.com/cuda/cuda-toolkit-release-notes/ (library sonames), framework install pages"
NO_CUDNN_NEEDED = ("cupy", "llama-cpp-python", "bitsandbytes", "numba", "dgl")


def needs_cudnn(build: Build) -> bool:
    """Does the build load cuDNN at start or at the first convolution?"""
    return not build.framework.startswith(NO_CUDNN_NEEDED)


def same_minor_needed(build: Build) -> bool:
    """Must the base's CUDA be the very minor the wheel was built for?"""
    if build.wheel_cuda is None or "." not in build.wheel_cuda:
        return False
    if major(build.wheel_cuda) < 11:
        return True
    if build.framework.startswith("cupy-cuda") and parts(build.wheel_cuda) < (11, 2):
        # NVRTC kept the minor in its name until 11.2 (libnvrtc.so.11.0).
        return True
    return build.framework.startswith("paddlepaddle") and version_key(build.version) < Version("3")


def judge_base_cuda(
    build: Build, base_cuda: str | None, *, subject: str, where: str, flavour: str | None
) -> list[Outcome]:
    """Does the CUDA in the base serve a system-linked wheel? ``base_cuda`` None: the base has none."""
    want = build.wheel_cuda
    if want is None:
        return []
    if base_cuda is None:
        return [
            outcome(
                "one-cuda",
                "no",
                f"{subject} takes CUDA {want} from the system, and {where} has none",
                SONAMES,
                fix=f"use a base with CUDA {want}"
                + (" and cuDNN (cudnn-runtime)" if needs_cudnn(build) else " (runtime)"),
            )
        ]
    if build.cuda_builds:
        return [_one_of(build, base_cuda, subject, where), *_flavour(build, flavour, subject, where)]
    text = f"{subject} is built for CUDA {want} (wheel_cuda); {where} has CUDA {base_cuda} (base_cuda)"
    if same_minor_needed(build) and minor(base_cuda) != minor(want):
        why = ": below CUDA 11 the library names hold the minor" if major(want) < 11 else ": Paddle wants the very same"
        return [outcome("one-cuda", "no", text + why, SONAMES, fix=_other(build, base_cuda))]
    if major(base_cuda) != major(want):
        return [
            outcome(
                "one-cuda",
                "no",
                f"{text}: another major, libcudart.so.{major(want)} is not there",
                SONAMES,
                fix=_other(build, base_cuda),
            )
        ]
    ok = at_least(base_cuda, want) or "." not in want
    made = outcome(
        "one-cuda",
        "yes" if ok else "warn",
        text + ("" if ok else ": older than built, symbols may be missing"),
        SONAMES,
    )
    return [made, *_flavour(build, flavour, subject, where)]


def _one_of(build: Build, base_cuda: str, subject: str, where: str) -> Outcome:
    builds = ", ".join(build.cuda_builds)
    text = f"{subject} holds builds for CUDA {builds}; {where} has CUDA {base_cuda}"
    if minor(base_cuda) in build.cuda_builds:
        return outcome("one-cuda", "yes", text, SONAMES)
    older = [c for c in build.cuda_builds if major(c) == major(base_cuda) and parts(c) <= parts(base_cuda)]
    if older and major(base_cuda) >= 11:
        return outcome(
            "one-cuda", "warn", f"{text}: the one for {older[-1]} is tried, officially only those listed", SONAMES
        )
    return outcome(
        "one-cuda", "no", f"{text}: none of them", SONAMES, fix=f"use a base with CUDA {build.cuda_builds[-1]}"
    )


def _other(build: Build, base_cuda: str) -> str:
    return f"use a base with CUDA {build.wheel_cuda}, or the build for CUDA {minor(base_cuda)} where there is one"


def _flavour(build: Build, flavour: str | None, subject: str, where: str) -> list[Outcome]:
    if flavour == "base":
        return [
            outcome(
                "one-cuda",
                "no",
                f"{subject} needs cuBLAS and more from the system; {where} is the 'base' flavour with cudart alone",
                SONAMES,
                fix="use the cudnn-runtime flavour",
            )
        ]
    if flavour in {"runtime", "devel"} and needs_cudnn(build):
        return [
            outcome(
                "cudnn",
                "no",
                f"{subject} needs cuDNN {build.cudnn or ''} from the system; {where} is a '{flavour}' flavour without "
                "cuDNN",
                SONAMES,
                fix="use the cudnn-runtime flavour",
            )
        ]
    return []


def judge_base_cudnn(build: Build, cudnn: str | None, *, subject: str, where: str) -> Outcome | None:
    """cuDNN of the base against the one the system-linked wheel was built for."""
    if not needs_cudnn(build) or lowest(build.cudnn) is None:
        return None
    return judge_cudnn_loaded(build.cudnn, cudnn, subject=subject, where=where)
