"""The nouns of gpuimg. Everything else is a function from one to the next.

``Cell`` (one combination asked for) → ``Plan`` (resolved and explained) → image → ``Evidence`` (measured in the
container) → ``Verdict`` (policy applied) → ``Certificate`` (bound to the digest). ``Host`` is what is known of a
GPU server; ``Requirement`` what a user asks of it; ``Finding`` one explained reason.

Three CUDA versions are kept apart everywhere: ``wheel_cuda`` (what the framework was compiled with), ``base_cuda``
(the toolkit in the base image) and ``driver_cuda`` (what nvidia-smi prints: the newest the driver supports).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Answer = Literal["yes", "warn", "no", "unknown"]
FitVerdict = Literal["fits", "fits-with-compat", "fits-via-ptx", "does-not-fit", "unknown"]
Severity = Literal["ok", "warn", "fail", "ask"]
LintSeverity = Literal["error", "warning", "note"]
Runtime = Literal["docker", "bare", "wsl2"]
Machine = Literal["x86_64", "aarch64"]
CheckStatus = Literal["pass", "fail", "skip", "error"]


@dataclass(frozen=True)
class Finding:
    """One reason of an answer: which rule spoke, what it said, on what evidence, from which source."""

    rule: str
    verdict: Answer
    evidence: str
    source: str
    gpu: str | None = None
    """The card it is about, where cards differ."""
    fix: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {k: v for k, v in asdict(self).items() if v is not None}


@dataclass(frozen=True)
class HostFinding:
    """One thing seen on a server. ``ask`` means: this fact is missing and matters, ask the provider."""

    rule: str
    severity: Severity
    evidence: str
    fix: str | None = None
    source: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {k: v for k, v in asdict(self).items() if v is not None}


@dataclass(frozen=True)
class LintFinding:
    """One thing a file does that will break (error), may break or bloats (warning), or is worth knowing (note)."""

    rule: str
    severity: LintSeverity
    file: str
    line: int | None
    message: str
    fix: str
    source: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Cause:
    """What an error message or log line means."""

    rule: str
    cause: str
    evidence: str
    fix: str
    confidence: Literal["high", "medium", "low"]
    source: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Gpu:
    """One card of a server, as far as it is known. ``name`` as nvidia-smi prints it where it came from there."""

    name: str
    index: int | None = None
    compute_capability: str | None = None
    """'12.0'; None when the name is not known."""
    memory_mib: int | None = None
    pci_id: str | None = None
    """Device id, four hex digits, upper case ('2684')."""
    bus_id: str | None = None
    uuid: str | None = None
    mig: bool | None = None
    mig_profiles: tuple[str, ...] = ()
    ecc: bool | None = None
    details: dict[str, Any] = field(default_factory=dict)
    """Whatever else the source said: power_limit_w, sm_clock_mhz, ecc counters, remapped rows …"""

    def to_json(self) -> dict[str, Any]:
        out = asdict(self)
        details = out.pop("details")
        return {**{k: v for k, v in out.items() if v not in (None, ())}, **details}


@dataclass(frozen=True)
class Host:
    """What is known of a GPU server. Every field may be missing: unknown stays unknown."""

    gpus: tuple[Gpu, ...] = ()
    driver: str | None = None
    """Kernel driver version, '570.86.10'."""
    driver_cuda: str | None = None
    """'CUDA Version' of nvidia-smi: the newest CUDA the driver supports; never a toolkit."""
    toolkit: str | None = None
    """CUDA toolkit installed on the host ('12.4'), from nvcc or a provider's page."""
    cudnn: str | None = None
    python: str | None = None
    os: str | None = None
    """'ubuntu22.04', 'centos7', 'debian12' …"""
    glibc: str | None = None
    machine: str = "x86_64"
    runtime: Runtime | None = None
    frameworks: tuple[Requirement, ...] = ()
    """Preinstalled, as a provider's page says."""
    findings: tuple[HostFinding, ...] = ()
    missing: tuple[str, ...] = ()
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Requirement:
    """One thing a user wants to run, in normal form.

    ``torch==2.5.1+cu124`` → name='torch', specifier='==2.5.1', local='cu124'.
    ``jax[cuda12]>=0.4.30`` → name='jax', extras=('cuda12',), specifier='>=0.4.30'.
    """

    name: str
    """PEP 503 normal name; known aliases kept as written (tensorflow-gpu stays tensorflow-gpu)."""
    specifier: str = ""
    local: str | None = None
    """Local version label that names the build: cu124, cpu, post112 …"""
    extras: tuple[str, ...] = ()
    marker: str | None = None
    url: str | None = None
    """Direct reference or wheel file name."""
    raw: str = ""
    file: str | None = None
    line: int | None = None
    from_file: bool = False
    """In a file a local label also needs an index that holds it; on the command line it just names the build."""


@dataclass(frozen=True)
class ProjectNeeds:
    """What a project's files ask for: the union of everything read, with its places."""

    requirements: tuple[Requirement, ...] = ()
    python: str | None = None
    """A single version ('3.8') or a specifier ('>=3.9') when the files name one."""
    index_urls: tuple[str, ...] = ()
    """--index-url, --extra-index-url, --find-links, uv/poetry sources, in order."""
    base: str | None = None
    """FROM of the final stage, ARGs substituted."""
    conda_channels: tuple[str, ...] = ()
    conda: tuple[Requirement, ...] = ()
    """conda packages (pytorch, pytorch-cuda, cudatoolkit …), not pip ones."""
    env: tuple[tuple[str, str], ...] = ()
    """ENV of the Dockerfile's final stage."""
    files: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


# --- the pipeline -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    """One combination a matrix file asks for, fully expanded; ``id`` is stable and names its folder and tag.

    ``cuda`` is the wheel_cuda asked for ('12.4', 'auto'), None for device 'cpu'.
    """

    id: str
    framework: str
    version: str
    device: Literal["cuda", "cpu"]
    cuda: str | None
    cudnn: str | None
    python: str
    os: str
    profile: str
    machine: str = "x86_64"
    packages: tuple[str, ...] = ()
    file: str = ""
    line: int | None = None


@dataclass(frozen=True)
class BaseImage:
    """The base a plan builds on. ``origin`` says where it comes from and is recorded in labels, never silent."""

    reference: str
    """'nvidia/cuda:12.4.1-base-ubuntu22.04' or the local name of a bootstrapped base."""
    origin: Literal["registry", "mirror", "bootstrapped", "imported"]
    flavour: Literal["base", "runtime", "cudnn-runtime", "devel", "distribution"]
    base_cuda: str | None
    os: str
    digest: str | None = None
    snapshot: str | None = None
    """Distribution snapshot a bootstrapped base was made from."""


@dataclass(frozen=True)
class Plan:
    """A cell resolved: exact wheels, base and index, with the findings that led there."""

    cell: Cell
    verdict: FitVerdict
    findings: tuple[Finding, ...]
    version: str
    wheel_cuda: str | None
    cudnn: str | None
    nccl: str | None
    python: str
    base: BaseImage | None
    index_url: str | None
    requirements: tuple[str, ...]
    """PEP 508 lines, pinned, in install order."""
    sm: tuple[str, ...] = ()
    min_driver: str | None = None
    estimated_mib: int | None = None
    instead: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True)
class CheckResult:
    """One line of evidence: what a check measured. The suite writes these as JSON; this is the reader's side."""

    id: str
    title: str
    status: CheckStatus
    seconds: float
    measured: dict[str, Any] = field(default_factory=dict)
    expected: dict[str, Any] = field(default_factory=dict)
    reason: str | None = None
    hint: str | None = None
    applicable: bool = True
    """False for a skip that has no meaning for this framework or card: a policy cannot require it there."""

    def to_json(self) -> dict[str, Any]:
        return {k: v for k, v in asdict(self).items() if v is not None}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> CheckResult:
        """Reads :meth:`to_json`; TypeError for unknown or missing keys."""
        return cls(**value)


@dataclass(frozen=True)
class Evidence:
    """What the suite measured in one container (or on one bare shell), unjudged.

    ``environment`` is the suite's first line (python, framework, GPUs, driver, nonce), ``summary`` its last;
    ``injection`` how the GPU got in: 'cdi', 'nvidia-runtime', 'gpus', 'none', 'bare'.
    """

    environment: dict[str, Any]
    checks: tuple[CheckResult, ...]
    summary: dict[str, Any]
    suite_version: str
    suite_digest: str
    profile: str
    image_digest: str | None
    injection: str
    started: str
    finished: str
    host: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Lists instead of tuples, so that what is written and read back is equal."""
        return {**asdict(self), "checks": [check.to_json() for check in self.checks]}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Evidence:
        """Reads :meth:`to_json`; TypeError or KeyError for anything else."""
        checks = tuple(CheckResult.from_json(check) for check in value["checks"])
        return cls(**{**value, "checks": checks})


@dataclass(frozen=True)
class Verdict:
    """Policy applied to evidence. ``certified`` only when every required check passed; a skip is not a pass."""

    certified: bool
    device: Literal["cpu", "cuda"]
    scope: dict[str, Any]
    """profile × GPU model × driver branch, or {'device': 'cpu'}."""
    reasons: tuple[str, ...]
    """Why not, or what limits it."""
    passed: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()
    """(check id, reason)."""
    policy_digest: str = ""

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "skipped": [{"id": i, "reason": r} for i, r in self.skipped]}


@dataclass(frozen=True)
class Certificate:
    """An in-toto Statement v1 about an image digest; ``envelope`` is its DSSE form when signed."""

    statement: dict[str, Any]
    envelope: dict[str, Any] | None = None
