"""What engines need of a card beyond code for it (vLLM ≥ 7.0, FlashAttention 2 ≥ 8.0 …), MIG, cards of one server
together."""

from __future__ import annotations

from collections.abc import Sequence

from gpuimg.knowledge.base import Knowledge, version_key
from gpuimg.knowledge.rules.numbers import parts, within
from gpuimg.knowledge.rules.outcome import Outcome, outcome

MIG_GUIDE = "https://docs.nvidia.com/datacenter/tesla/mig-user-guide/"
ENGINES = frozenset({"vllm", "sglang", "tensorrt-llm"})


def judge_limits(
    package: str, version: str, capability: str, knowledge: Knowledge, *, gpu: str | None = None
) -> list[Outcome]:
    """Rows of the limits table that speak about this package, version and card."""
    made: list[Outcome] = []
    for row in knowledge.limits:
        if row.package != package or (row.versions and not within(version_key(version), row.versions)):
            continue
        low = row.cc_min is not None and parts(capability) < parts(row.cc_min)
        high = row.cc_max is not None and parts(capability) > parts(row.cc_max)
        if not low and not high:
            continue
        bound = f"≥ {row.cc_min}" if low else f"≤ {row.cc_max}"
        text = f"{package} {version}: {row.why} (compute capability {bound}; this card has {capability})"
        if row.feature is None:
            made.append(outcome("engine", "no" if row.hard else "warn", text, row.source, gpu=gpu))
        elif package in ENGINES and row.feature in {"bf16", "fp8"} and row.hard:
            made.append(outcome("engine", "warn", f"{row.feature}: {text}", row.source, gpu=gpu))
    return made


def judge_mig(instances: Sequence[str | None]) -> Outcome | None:
    """One process sees one MIG instance, and NCCL does not work between instances."""
    slices = [i for i in instances if i]
    if len(slices) < 2:
        return None
    return outcome(
        "mig",
        "warn",
        f"{len(slices)} MIG instances ({', '.join(sorted(set(slices)))}): a process sees one of them, and "
        "NCCL does not "
        "work between instances",
        MIG_GUIDE,
        fix="one process for each instance, or switch MIG off for work on several",
    )


def judge_together(capabilities: Sequence[str], brands: Sequence[str | None]) -> list[Outcome]:
    """Several cards: unlike ones need care, GeForce from Ada on has no peer-to-peer."""
    made: list[Outcome] = []
    if len(set(capabilities)) > 1:
        made.append(
            outcome(
                "mixed-gpus",
                "warn",
                f"unlike cards in one server (compute capability {', '.join(sorted(set(capabilities), key=parts))}): "
                "the build must hold code for each",
                "CUDA C Programming Guide, multi-device systems",
            )
        )
    if len(brands) > 1 and all(b == "geforce" for b in brands) and any(parts(c) >= (8, 9) for c in capabilities):
        made.append(
            outcome(
                "p2p",
                "warn",
                "GeForce RTX 40 and 50 have no peer-to-peer over PCIe: NCCL goes through host memory",
                "https://github.com/NVIDIA/nccl/issues (NCCL_P2P_DISABLE on RTX 4090)",
            )
        )
    return made
