"""Driver rules: native, minor-version compatibility, forward compatibility, and which cards a driver branch drives.

Sources: NVIDIA CUDA release notes (toolkit ↔ driver), CUDA Compatibility guide (minor-version and forward
compatibility),
data-centre driver ↔ architecture matrix; the figures are in the knowledge base.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from gpuimg.knowledge.base import Knowledge
from gpuimg.knowledge.rules.numbers import at_least, major, minor, parts
from gpuimg.knowledge.rules.outcome import Outcome, outcome

MINOR_DOC = "https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html"
FORWARD_DOC = "https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html"
NOTES_DOC = "https://docs.nvidia.com/cuda/cuda-toolkit-release-notes/"
MATRIX_DOC = "https://docs.nvidia.com/datacenter/tesla/drivers/cuda-toolkit-driver-and-architecture-matrix.html"


@dataclass(frozen=True)
class DriverFacts:
    """What is known of the driver: its version, or only the CUDA version nvidia-smi prints, or both."""

    version: str | None = None
    cuda: str | None = None
    windows: bool = False
    """True on WSL2: the number is the Windows driver's."""
    branch: str | None = None
    """What was written, where it was a branch alone ('550'); ``version`` is then a release that stands for it."""

    @property
    def known(self) -> bool:
        return self.version is not None or self.cuda is not None

    @property
    def text(self) -> str:
        if self.branch and self.version:
            return f"driver {self.branch} (read as {self.version})"
        if self.version and self.cuda:
            return f"driver {self.version} (driver_cuda {self.cuda})"
        return f"driver {self.version}" if self.version else f"driver_cuda {self.cuda}"


@dataclass(frozen=True)
class Forward:
    """A cuda-compat package within reach: its CUDA minor, and branches its image's own REQUIRE admits."""

    cuda: str
    admitted: tuple[int, ...] = ()


def read_driver(version: str | None, cuda: str | None, knowledge: Knowledge, *, windows: bool = False) -> DriverFacts:
    """A driver as written. A Linux branch without a point ('550') is the branch, not a version 550.0 that no release has.

    It is read as the driver that came with the branch's newest CUDA, or as the floor of minor-version compatibility where
    that lies within the branch (450.80.02), whichever is newer. A branch that came with no CUDA stays as written.
    """
    if version is None or windows or not version.strip().isdigit():
        return DriverFacts(version, cuda, windows=windows)
    branch = int(version)
    firsts = [first for t in knowledge.toolkits if (first := knowledge.first_driver(t.version))]
    within = [v for v in (*firsts, *knowledge.minor_compat.values()) if parts(v)[:1] == (branch,)]
    stands = max(within, key=parts, default=None)
    return DriverFacts(stands or version.strip(), cuda, branch=version.strip() if stands else None)


@lru_cache(maxsize=4096)
def newest_cuda(driver: DriverFacts, knowledge: Knowledge) -> str | None:
    """The newest CUDA minor the driver supports: from its version, else what nvidia-smi says."""
    if driver.version is None:
        return driver.cuda
    if driver.windows:
        if driver.cuda:
            return driver.cuda
        known = [
            minor(t.version)
            for t in knowledge.toolkits
            if t.driver_windows and at_least(driver.version, t.driver_windows)
        ]
        return max(known, key=parts) if known else None
    table = knowledge.driver_cuda(driver.version)
    branch = parts(driver.version)[:1]
    natives = [f.toolkit for f in knowledge.forward_compat if f.state == "native" and (int(f.branch),) <= branch]
    return max([v for v in (table, *natives) if v], key=parts, default=None)


def branch_of(driver: DriverFacts, knowledge: Knowledge) -> int | None:
    """The driver branch: 550 for 550.54.14; from driver_cuda the branch that came with that CUDA."""
    if driver.version is not None and not driver.windows:
        return parts(driver.version)[0] if parts(driver.version) else None
    cuda = newest_cuda(driver, knowledge)
    first = knowledge.first_driver(cuda) if cuda else None
    return parts(first)[0] if first else None


@lru_cache(maxsize=16384)
def is_native(cuda: str, driver: DriverFacts, knowledge: Knowledge) -> bool | None:
    """Does the driver fully support that CUDA, PTX included? None: no driver given, or the CUDA is not in the table."""
    if not driver.known:
        return None
    if "." not in cuda:
        cuda = f"{cuda}.0"
    if driver.version is not None and not driver.windows:
        first = knowledge.first_driver(cuda)
        if first is not None:
            return at_least(driver.version, first)
    have = newest_cuda(driver, knowledge)
    if have is not None:
        return at_least(have, minor(cuda))
    if driver.version is not None:
        oldest = min((t.driver_linux for t in knowledge.toolkits if t.driver_linux), key=parts)
        return False if parts(driver.version) < parts(oldest) and not driver.windows else None
    return None


@lru_cache(maxsize=16384)
def minor_floor(cuda: str, driver: DriverFacts, knowledge: Knowledge) -> bool | None:
    """Is the driver at or above the floor of that CUDA major's minor-version compatibility? None: cannot tell."""
    table = knowledge.minor_compat_windows if driver.windows else knowledge.minor_compat
    floor = table.get(major(cuda))
    if floor is None:
        if major(cuda) < 11 or not driver.known:
            return False
        have = newest_cuda(driver, knowledge)
        return None if have is None else major(have) >= major(cuda)
    if driver.version is not None:
        return at_least(driver.version, floor)
    if driver.cuda is None:
        return None
    if major(driver.cuda) != major(cuda):
        return major(driver.cuda) > major(cuda)
    # 11.0 came with 450.36 and 450.51; the floor of the family is 450.80.02.
    return None if minor(driver.cuda) == "11.0" else True


@lru_cache(maxsize=1024)
def needed(cuda: str, knowledge: Knowledge) -> str:
    """'≥ 550.54.14 (native), ≥ 525.60.13 by minor-version compatibility' for texts."""
    first = knowledge.first_driver(cuda if "." in cuda else f"{cuda}.0")
    floor = knowledge.minor_compat.get(major(cuda))
    native = f"≥ {first}" if first else f"of CUDA {cuda}"
    if floor and first and parts(floor) < parts(first):
        return f"{native} (native), or ≥ {floor} by minor-version compatibility"
    return native


def lowest_driver(cuda: str, knowledge: Knowledge) -> str | None:
    """The oldest Linux driver that runs a build of that CUDA, on any card: the family's floor, or the toolkit's own."""
    first = knowledge.first_driver(cuda if "." in cuda else f"{cuda}.0")
    floor = knowledge.minor_compat.get(major(cuda))
    known = [v for v in (first, floor) if v]
    return min(known, key=parts) if known else None


def forward_state(forward: Forward, driver: DriverFacts, knowledge: Knowledge) -> bool | None:
    """May that cuda-compat package run on this branch? The official matrix first, then the image's own REQUIRE."""
    branch = branch_of(driver, knowledge)
    if branch is None:
        return None
    for row in knowledge.forward_compat:
        if row.toolkit == minor(forward.cuda) and int(row.branch) == branch:
            return row.state == "supported"
    return branch in forward.admitted


def judge_driver(
    cuda: str,
    driver: DriverFacts,
    knowledge: Knowledge,
    *,
    subject: str,
    data_centre: bool | None = None,
    forward: Forward | None = None,
    gpu: str | None = None,
    rule: str = "driver",
) -> Outcome:
    """Can the driver run what was built with ``cuda``? Modes: native, or compat (minor-version or forward)."""
    need = needed(cuda, knowledge)
    if not driver.known:
        return outcome(
            rule,
            "unknown",
            f"{subject} needs a driver {need}; the driver is not given",
            NOTES_DOC,
            gpu=gpu,
            missing=("driver",),
        )
    native = is_native(cuda, driver, knowledge)
    if native:
        return outcome(rule, "yes", f"{subject} needs a driver {need}; {driver.text} is native", NOTES_DOC, gpu=gpu)
    family = minor_floor(cuda, driver, knowledge) if major(cuda) >= 11 else False
    if family:
        return outcome(
            rule,
            "warn",
            f"{subject} is newer than {driver.text}, which runs it by minor-version compatibility "
            f"inside CUDA {major(cuda)}.x (no PTX; native from {knowledge.first_driver(cuda) or 'a newer driver'})",
            MINOR_DOC,
            gpu=gpu,
            mode="compat",
        )
    if forward is not None and at_least(forward.cuda, minor(cuda)) and family is not None and native is not None:
        state = forward_state(forward, driver, knowledge)
        if state and data_centre:
            return outcome(
                rule,
                "warn",
                f"{subject} is above {driver.text}; the image's cuda-compat {forward.cuda} "
                "bridges it (forward compatibility, data-centre cards only)",
                FORWARD_DOC,
                gpu=gpu,
                mode="compat",
            )
        if state and data_centre is None:
            return outcome(
                rule,
                "unknown",
                f"{subject} is above {driver.text}; forward compatibility would bridge it on a data-centre "
                "card or an RTX board of an NGC-ready server only",
                FORWARD_DOC,
                gpu=gpu,
                missing=("gpu",),
            )
    if native is None or family is None:
        return outcome(
            rule,
            "unknown",
            f"{subject} needs a driver {need}; {driver.text} alone does not decide",
            MINOR_DOC,
            gpu=gpu,
            missing=("driver",),
        )
    why = ""
    if forward is not None and not data_centre:
        why = "; forward compatibility (cuda-compat) is for data-centre cards only (error 804 elsewhere)"
    elif data_centre:
        why = "; only an image with cuda-compat would bridge it on a data-centre card"
    lowest = lowest_driver(cuda, knowledge)
    return outcome(
        rule,
        "no",
        f"{subject} needs a driver {need}; {driver.text} is too old{why}",
        NOTES_DOC,
        gpu=gpu,
        fix=f"ask for a driver ≥ {knowledge.first_driver(cuda) or lowest or 'newer'}, or take a build of an older CUDA",
    )


def judge_card_driver(
    capability: str, driver: DriverFacts, knowledge: Knowledge, *, gpu: str | None = None
) -> Outcome | None:
    """Does this driver branch drive this architecture at all? None when it does, or when nothing is known."""
    row = next((a for a in knowledge.architectures if a.compute_capability == capability), None)
    branch = branch_of(driver, knowledge)
    if row is None or branch is None:
        return None
    name = f"{row.name} (compute capability {capability})"
    if row.last_driver_branch and branch > int(row.last_driver_branch.lstrip("R")):
        return outcome(
            "gpu-driver",
            "no",
            f"driver branch {branch} no longer drives {name}: R{row.last_driver_branch.lstrip('R')} is the last",
            MATRIX_DOC,
            gpu=gpu,
            fix=f"use a driver of branch {row.last_driver_branch.lstrip('R')} or older",
        )
    first = row.first_driver_branch
    if first is None and row.first_toolkit:
        toolkit_driver = knowledge.first_driver(row.first_toolkit)
        first = f"R{parts(toolkit_driver)[0]}" if toolkit_driver else None
    if first and branch < int(first.lstrip("R")):
        return outcome(
            "gpu-driver",
            "no",
            f"{name} needs a driver of branch {first.lstrip('R')} or newer; {driver.text} does not know the card",
            MATRIX_DOC,
            gpu=gpu,
            fix=f"ask for a driver ≥ {first.lstrip('R')}",
        )
    return None


def judge_agreement(driver: DriverFacts, knowledge: Knowledge) -> Outcome | None:
    """``driver`` and ``driver_cuda`` given together must belong together."""
    if not driver.version or not driver.cuda or driver.windows:
        return None
    expected = newest_cuda(DriverFacts(driver.version), knowledge)
    if expected is None or expected == minor(driver.cuda):
        return None
    if branch_of(DriverFacts(cuda=driver.cuda), knowledge) == branch_of(DriverFacts(driver.version), knowledge):
        return None
    return outcome(
        "driver-contradiction",
        "warn",
        f"driver {driver.version} supports CUDA {expected}, yet driver_cuda is given as {driver.cuda}: "
        "one of the two is wrong, or nvidia-smi was read in a container with cuda-compat",
        NOTES_DOC,
    )
