"""GPU code rule: SASS runs on the same major with an equal or higher minor; PTX on anything newer, if the driver
compiles it.

Source: CUDA C Programming Guide, binary and PTX compatibility; Blackwell and Tegra notes of the compatibility guides.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

from gpuimg.knowledge.base import Knowledge
from gpuimg.knowledge.rules.numbers import at_least, code_target, minor, parts
from gpuimg.knowledge.rules.outcome import Outcome, outcome

GUIDE = "https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#application-compatibility"
TEGRA = frozenset({"3.2", "5.3", "6.2", "7.2", "8.7"})
"""Jetson boards: code for desktop cards of the same major does not run there (programming guide, binary
compatibility)."""


def code_for(capability: str, sm: Sequence[str]) -> Literal["sass", "ptx", "none"]:
    """What an SM list holds for a card: machine code, PTX to compile, or nothing."""
    want = parts(capability)
    if len(want) != 2:
        return "none"
    best: Literal["sass", "ptx", "none"] = "none"
    for name in sm:
        target = code_target(name)
        if target is None:
            continue
        kind, target_major, target_minor, suffix = target
        have = (target_major, target_minor)
        if kind == "sm":
            same = target_major == want[0] and target_minor <= want[1]
            if suffix == "a" or capability in TEGRA:
                same = have == want
            if same:
                return "sass"
        elif have <= want and (suffix != "a" or have == want) and (suffix != "f" or target_major == want[0]):
            best = "ptx"
    return best


def span(sm: Sequence[str]) -> str:
    """'sm_50 … sm_90 + PTX 9.0' for texts: every SASS target, then PTX."""
    sass = [s for s in sm if s.startswith("sm_")]
    ptx = [s for s in sm if s.startswith("compute_")]
    text = ", ".join(sass) or "no SASS"
    return f"{text}; PTX {', '.join(ptx)}" if ptx else f"{text}; no PTX"


@lru_cache(maxsize=512)
def family_toolkit(capability: str, knowledge: Knowledge) -> str | None:
    """The first toolkit that makes any SASS a card can run: the oldest of its own major with minor ≤ its own."""
    want = parts(capability)
    rows = [
        a.first_toolkit
        for a in knowledge.architectures
        if a.first_toolkit
        and parts(a.compute_capability)[0] == want[0]
        and parts(a.compute_capability) <= want
        and (a.compute_capability not in TEGRA or a.compute_capability == capability)
    ]
    return min(rows, key=parts) if rows else None


@lru_cache(maxsize=4096)
def toolkit_knows(capability: str, cuda: str, knowledge: Knowledge) -> bool | None:
    """Can a toolkit make machine code this card runs (so that its cuBLAS and cuDNN can hold some)? None: not in
    the table."""
    row = next((a for a in knowledge.architectures if a.compute_capability == capability), None)
    first = family_toolkit(capability, knowledge)
    if row is None or first is None:
        return None
    last = row.last_toolkit
    if "." in cuda:
        return at_least(minor(cuda), first) and not (last and not at_least(last, minor(cuda)))
    if not at_least(f"{cuda}.99", first) or (last and not at_least(last, f"{cuda}.0")):
        return False
    return True if at_least(f"{cuda}.0", first) else None


def judge_sm(
    capability: str,
    sm: Sequence[str] | None,
    wheel_cuda: str | None,
    knowledge: Knowledge,
    *,
    subject: str,
    native: bool | None,
    libraries_follow: bool = False,
    gpu: str | None = None,
    source: str = GUIDE,
) -> Outcome:
    """Does the build hold code for the card? ``native``: the driver is at least the build's CUDA (PTX needs that).

    ``libraries_follow``: cuBLAS and cuDNN come in newer versions than the build (jax), so their age is no limit.
    """
    arch = next((a for a in knowledge.architectures if a.compute_capability == capability), None)
    called = f"compute capability {capability}" + (f" ({arch.name})" if arch else "")
    wanted = f"sm_{capability.replace('.', '')}"
    known = toolkit_knows(capability, wheel_cuda, knowledge) if wheel_cuda else None
    built = f"CUDA {wheel_cuda} (wheel_cuda)" if wheel_cuda else "its CUDA"
    if sm is None:
        if known is False:
            return outcome(
                "sm",
                "no",
                f"{subject}: {built} can hold no machine code for {called}, {wanted}"
                f" (toolkits {_range(capability, knowledge)})",
                source,
                gpu=gpu,
            )
        return outcome(
            "sm",
            "unknown",
            f"{subject}: its SM list is not measured; {built} {'knows' if known else 'may know'} {called}",
            source,
            gpu=gpu,
            missing=("sm list of the build",),
        )
    code = code_for(capability, sm)
    if code == "sass":
        return outcome("sm", "yes", f"{subject} holds code for {called}: {span(sm)}", source, gpu=gpu)
    if code == "none":
        hint = _why_none(capability, sm)
        return outcome(
            "sm", "no", f"{subject} holds {span(sm)}: nothing runs on {called}, {wanted}{hint}", source, gpu=gpu
        )
    if known is False and not libraries_follow:
        return outcome(
            "sm",
            "no",
            f"{subject} holds only PTX for {called}, {wanted} ({span(sm)}), and the cuBLAS and cuDNN of {built} "
            f"have no code for it (toolkits {_range(capability, knowledge)})",
            source,
            gpu=gpu,
        )
    if native is False:
        return outcome(
            "sm",
            "no",
            f"{subject} holds only PTX for {called}, {wanted} ({span(sm)}), and a driver older than {built} cannot "
            "compile that PTX (error 222): minor-version compatibility does not cover it",
            source,
            gpu=gpu,
        )
    return outcome(
        "sm",
        "warn",
        f"{subject} holds only PTX for {called} ({span(sm)}): the driver compiles it at the first start, "
        "which takes minutes",
        source,
        gpu=gpu,
        mode="ptx",
    )


def _range(capability: str, knowledge: Knowledge) -> str:
    row = next((a for a in knowledge.architectures if a.compute_capability == capability), None)
    first = family_toolkit(capability, knowledge)
    if row is None:
        return "that know it are not in the table"
    return f"{first} to {row.last_toolkit} do" if row.last_toolkit else f"from {first} on do"


def _why_none(capability: str, sm: Sequence[str]) -> str:
    targets = [t for t in map(code_target, sm) if t and t[0] == "sm"]
    want = parts(capability)
    if capability in TEGRA and any(t[1] == want[0] for t in targets):
        return " (code for desktop cards does not run on a Jetson)"
    if targets and want < min((t[1], t[2]) for t in targets):
        return " (the build dropped it)"
    if targets and want > max((t[1], t[2]) for t in targets):
        return " (the build is older than the card)"
    return ""
