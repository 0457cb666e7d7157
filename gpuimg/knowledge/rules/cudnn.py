"""cuDNN rules: same major and loaded ≥ built; which cards a cuDNN still serves.

Source: cuDNN support matrices (one row a range of versions in the knowledge base); StreamExecutor's and PyTorch's
own checks.
"""

from __future__ import annotations

import re
from functools import lru_cache

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from gpuimg.knowledge.base import Knowledge
from gpuimg.knowledge.rules.numbers import at_least, major, parts
from gpuimg.knowledge.rules.outcome import Outcome, outcome
from gpuimg.knowledge.tables import CudnnSupport

RULE_DOC = "https://docs.nvidia.com/deeplearning/cudnn/backend/latest/developer/forward-compatibility.html"


@lru_cache(maxsize=4096)
def exact(cudnn: str | None) -> str | None:
    """The version when the text is one ('9.1.0.70', '8.1', '8'); None for ranges."""
    return cudnn if cudnn and re.fullmatch(r"\d+(\.\d+)*", cudnn) else None


@lru_cache(maxsize=4096)
def lowest(cudnn: str | None) -> str | None:
    """The oldest cuDNN a text allows: '9.1.0.70' is itself, '<10.0,>=9.8' is 9.8."""
    if exact(cudnn):
        return cudnn
    found = re.search(r"(?:>=|~=|==)\s*(\d+(?:\.\d+)*)", cudnn or "")
    return found[1] if found else None


@lru_cache(maxsize=4096)
def support_row(cudnn: str, knowledge: Knowledge) -> CudnnSupport | None:
    """The row of an exact version; a lone major ('8') has none."""
    if len(parts(cudnn)) < 2:
        return None
    try:
        version = Version(cudnn)
    except InvalidVersion:
        return None
    for row in knowledge.cudnn:
        try:
            if SpecifierSet(row.cudnn).contains(version):
                return row
        except InvalidSpecifier:
            continue
    return None


def judge_cudnn_card(
    cudnn: str | None, capability: str, knowledge: Knowledge, *, subject: str, gpu: str | None = None
) -> Outcome | None:
    """Does that cuDNN still (or already) serve the card? None when the version is not exact or not in the table."""
    version = exact(cudnn)
    if version is None:
        low, top = lowest(cudnn), re.search(r"<\s*([\d.]+)", cudnn or "")
        if low and top and parts(low)[0] == 9 and parts(capability) < (7, 5):
            return outcome(
                "cudnn",
                "warn",
                f"{subject} takes any cuDNN {cudnn}: pip installs the newest, and cuDNN 9.11 and later have no "
                f"code for compute capability {capability}",
                "cuDNN support matrix",
                gpu=gpu,
                fix="pin nvidia-cudnn-cu12<9.11",
            )
        return None
    row = support_row(version, knowledge)
    if row is None:
        return None
    if parts(capability) < parts(row.cc_min):
        note = " (9.10.2 was the last for Maxwell, Pascal and Volta)" if at_least(version, "9.11") else ""
        return outcome(
            "cudnn",
            "no",
            f"{subject}: cuDNN {version} serves compute capability {row.cc_min} and newer, not {capability}{note}",
            row.source,
            gpu=gpu,
            fix="pin a cuDNN older than 9.11" if at_least(version, "9.11") else None,
        )
    if row.cc and parts(capability)[0] > max(parts(c)[0] for c in row.cc):
        return outcome(
            "cudnn",
            "warn",
            f"{subject}: cuDNN {version} is older than compute capability {capability}: it may lack kernels for it",
            row.source,
            gpu=gpu,
        )
    return None


def judge_cudnn_loaded(built: str | None, loaded: str | None, *, subject: str, where: str) -> Outcome | None:
    """``built`` is what the wheel was compiled with, ``loaded`` what ``where`` holds. None when either is unknown."""
    want = lowest(built)
    if want is None or loaded is None:
        return None
    if major(want) != major(loaded):
        return outcome(
            "cudnn",
            "no",
            f"{subject} is built for cuDNN {built}; {where} has cuDNN {loaded}: the major must be the same",
            RULE_DOC,
            fix=f"use a base with cuDNN {major(want)}",
        )
    depth = min(len(parts(want)), len(parts(loaded)))
    if parts(loaded)[:depth] < parts(want)[:depth]:
        return outcome(
            "cudnn",
            "no",
            f"{subject} is built for cuDNN {built}; {where} has the older cuDNN {loaded}: loaded must be at "
            "least as new as built",
            RULE_DOC,
            fix=f"use cuDNN ≥ {want} of the same major",
        )
    return outcome("cudnn", "yes", f"{subject} is built for cuDNN {built}; {where} has {loaded}", RULE_DOC)
