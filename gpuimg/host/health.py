"""Health of the cards, from their readings: small rules, each saying what it saw, how bad it is and what to do."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from importlib import resources

import yaml

from gpuimg.knowledge import load
from gpuimg.knowledge.gpunames import card_of
from gpuimg.nouns import Gpu, Host, HostFinding

_ROWS = "https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/index.html"
_PAGES = "https://docs.nvidia.com/deploy/dynamic-page-retirement/index.html"
_FABRIC = "https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/index.html"
_NVML = "https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html"
_SMI = "https://docs.nvidia.com/deploy/nvidia-smi/index.html"
_MEMORY_TOLERANCE = 0.04
"""ECC on or off moves 48 GB GDDR6 cards by 6 %; HBM cards report within 2 %."""
_HOT = 90
"""°C; data-centre and GeForce cards begin to slow down between 83 and 95."""
_BRANCHES = "https://docs.nvidia.com/datacenter/tesla/drivers/"
_RETIRED_LIMIT = 60
"""Pages; a card with this many is to be exchanged (dynamic page retirement, RMA criteria)."""

Rule = Callable[[Gpu, str], Iterator[HostFinding]]


def judge(host: Host) -> tuple[HostFinding, ...]:
    """Every finding about the host's cards and its driver."""
    out: list[HostFinding] = []
    for place, gpu in enumerate(host.gpus):
        label = f"GPU {gpu.index if gpu.index is not None else place} ({gpu.name})"
        for rule in _RULES:
            out += rule(gpu, label)
    out += _mixed(host)
    out += _driver(host)
    out += _branch(host)
    out += _agreement(host)
    out += _windows(host)
    if host.gpus and not any(f.severity in ("fail", "warn", "ask") for f in (*host.findings, *out)):
        out += _nothing_found(host)
    return tuple(_once(out))


def _once(findings: Iterable[HostFinding]) -> Iterator[HostFinding]:
    seen: set[tuple[str, str]] = set()
    for finding in findings:
        key = (finding.rule, finding.evidence)
        if key not in seen:
            seen.add(key)
            yield finding


def _ecc(gpu: Gpu, label: str) -> Iterator[HostFinding]:
    count = gpu.details.get("ecc_uncorrected")
    volatile = sum(int(gpu.details.get(f"ecc_{kind}_uncorrected_volatile", 0)) for kind in ("sram", "dram"))
    volatile = max(volatile, int(count or 0))
    aggregate = sum(int(gpu.details.get(f"ecc_{kind}_uncorrected_aggregate", 0)) for kind in ("sram", "dram"))
    if volatile:
        yield HostFinding(
            "ecc",
            "fail",
            f"{label}: {volatile} uncorrectable ECC errors since the driver was loaded",
            "reset the GPU; refuse the server if they come back",
            _ROWS,
        )
    elif aggregate:
        yield HostFinding(
            "ecc",
            "warn",
            f"{label}: {aggregate} uncorrectable ECC errors in its life, none since the driver was loaded",
            "watch them; test the card before a long job",
            _ROWS,
        )


def _remapping(gpu: Gpu, label: str) -> Iterator[HostFinding]:
    details = gpu.details
    if details.get("remap_failure"):
        yield HostFinding("remapped-rows", "fail", f"{label}: row remapping failed", "exchange the card", _ROWS)
    if details.get("remap_pending"):
        yield HostFinding(
            "remapped-rows",
            "fail",
            f"{label}: a row remapping is pending: memory errors until the reset",
            "reset the GPU (or reboot) before using it",
            _ROWS,
        )
    count = int(details.get("remap_uncorrectable") or 0)
    if count:
        yield HostFinding(
            "remapped-rows",
            "warn",
            f"{label}: {count} rows remapped after uncorrectable errors",
            "a few are normal wear; a growing number means a failing card",
            _ROWS,
        )
    retired = int(details.get("retired_dbe") or 0) + int(details.get("retired_sbe") or 0)
    if retired >= _RETIRED_LIMIT:
        yield HostFinding(
            "retired-pages", "fail", f"{label}: {retired} memory pages retired", "exchange the card", _PAGES
        )
    elif retired:
        yield HostFinding(
            "retired-pages", "warn", f"{label}: {retired} memory pages retired", "watch the number", _PAGES
        )
    if details.get("retired_pending"):
        yield HostFinding(
            "retired-pages", "fail", f"{label}: a page retirement is pending", "reboot before using it", _PAGES
        )


def _recovery(gpu: Gpu, label: str) -> Iterator[HostFinding]:
    action = gpu.details.get("recovery_action")
    if action and str(action).lower() not in ("none", "n/a"):
        yield HostFinding(
            "recovery-action", "fail", f"{label}: the driver asks for: {action}", f"do it: {action}", _SMI
        )


def _heat(gpu: Gpu, label: str) -> Iterator[HostFinding]:
    temperature = gpu.details.get("temperature_c")
    if temperature and temperature >= _HOT:
        yield HostFinding(
            "temperature",
            "warn",
            f"{label}: {temperature:.0f} °C",
            "check cooling; measure under load before paying",
            _SMI,
        )


def _identity(gpu: Gpu, label: str) -> Iterator[HostFinding]:
    """The PCI id says which chip it is; a name that says another one was written into its BIOS or the paste."""
    if not gpu.pci_id:
        return
    owners = [m for m in load().gpus if gpu.pci_id in m.pci_ids]
    card = card_of(gpu, load())
    named = card.model
    if owners and named and named.pci_ids and gpu.pci_id not in named.pci_ids:
        names = ", ".join(m.name for m in owners)
        same = any(m.compute_capability == named.compute_capability for m in owners)
        yield HostFinding(
            "identity",
            "warn" if same else "fail",
            f"{label}: PCI id {gpu.pci_id} belongs to {names}, not to a card of this name",
            "a relabelled card or an edited paste: ask for the output of lspci -nn and measure it",
        )


def _unknown(gpu: Gpu, label: str) -> Iterator[HostFinding]:
    card = card_of(gpu, load())
    if card.foreign:
        yield HostFinding(
            "not-nvidia", "fail", f"{label}: not an NVIDIA card: {card.foreign}", "CUDA builds do not run on it"
        )
    elif gpu.compute_capability is None:
        near = f"; nearest: {', '.join(card.nearest[:3])}" if card.nearest else ""
        yield HostFinding(
            "unknown-gpu",
            "ask",
            f"{label}: this card is not known, so its compute capability is not{near}",
            "ask for: nvidia-smi --query-gpu=name,compute_cap --format=csv",
        )


def _persistence(gpu: Gpu, label: str) -> Iterator[HostFinding]:
    card = card_of(gpu, load())
    if gpu.details.get("persistence") is False and card.data_centre:
        yield HostFinding(
            "persistence",
            "ok",
            f"{label}: persistence mode is off: every first start on the idle card takes seconds longer",
            "nvidia-smi -pm 1 (root), or the nvidia-persistenced service",
            "https://docs.nvidia.com/deploy/driver-persistence/",
        )


def _fabric(gpu: Gpu, label: str) -> Iterator[HostFinding]:
    state, status = gpu.details.get("fabric_state"), gpu.details.get("fabric_status")
    if state is None:
        return
    if str(state).lower() == "completed" and str(status or "Success").lower() in ("success", "n/a", "none"):
        yield HostFinding("fabric", "ok", f"{label}: NVSwitch fabric completed", None, _FABRIC)
    elif str(state).lower() not in ("not supported", "n/a"):
        yield HostFinding(
            "fabric",
            "fail",
            f"{label}: NVSwitch fabric state is {state}"
            + (f", status {status}" if status else "")
            + ": CUDA fails with error 802 until it completes",
            "start nvidia-fabricmanager of exactly the driver's version; in a virtual machine ask the provider",
            _FABRIC,
        )


def _throttling(gpu: Gpu, label: str) -> Iterator[HostFinding]:
    reasons = [str(r).lower().replace("_", " ") for r in gpu.details.get("throttle", [])]
    bad = [r for r in reasons if "thermal" in r or "hw slowdown" in r or "power brake" in r]
    if bad:
        # the power cap in software is how a card at full load is meant to run; these are not
        yield HostFinding(
            "throttle",
            "warn",
            f"{label}: clocks are held down: {', '.join(sorted(set(bad)))}",
            "check cooling and power supply; measure under load before paying",
            _NVML,
        )
    counters = gpu.details.get("throttle_us") or {}
    long = {k: v for k, v in counters.items() if ("therm" in k or "brak" in k) and v > 60_000_000}
    if long:
        text = ", ".join(f"{k} {v / 1e6:.0f} s" for k, v in sorted(long.items()))
        yield HostFinding(
            "throttle-history",
            "warn",
            f"{label}: slowed down since the driver was loaded: {text}",
            "check cooling and power",
            _NVML,
        )


def _link(gpu: Gpu, label: str) -> Iterator[HostFinding]:
    details = gpu.details
    width, widest = details.get("pcie_width"), details.get("pcie_width_max")
    if width and widest and width < widest:
        yield HostFinding(
            "pcie-width",
            "warn",
            f"{label}: PCIe link has {width} of {widest} lanes",
            "reseat the card or riser; fine where the slot has no more lanes, loading data is slower",
            _SMI,
        )
    generation, best = details.get("pcie_gen"), details.get("pcie_gen_max")
    if (
        generation
        and best
        and generation < best
        and details.get("pstate") == "P0"
        and (details.get("utilisation") or 0) > 50
    ):
        yield HostFinding(
            "pcie-gen",
            "warn",
            f"{label}: PCIe generation {generation} of {best} while the card is busy",
            "check BIOS and riser",
            _SMI,
        )
    replays = details.get("pcie_replays")
    if replays and replays > 1000:
        yield HostFinding(
            "pcie-replays", "warn", f"{label}: {replays} PCIe replays: a poor link", "reseat the card or riser", _SMI
        )


def _mode(gpu: Gpu, label: str) -> Iterator[HostFinding]:
    mode = str(gpu.details.get("compute_mode") or "")
    if "rohibited" in mode:
        yield HostFinding(
            "compute-mode",
            "fail",
            f"{label}: compute mode is Prohibited: no CUDA program can run",
            "nvidia-smi -c DEFAULT (root)",
            _SMI,
        )
    elif "E. " in mode or "E.P" in mode or "xclusive" in mode:
        yield HostFinding(
            "compute-mode",
            "warn",
            f"{label}: compute mode is exclusive ({mode}): one process at a time, others get "
            "'all CUDA-capable devices are busy'",
            "nvidia-smi -c DEFAULT (root), or one process per card",
            _SMI,
        )


def _mig(gpu: Gpu, label: str) -> Iterator[HostFinding]:
    if gpu.mig and gpu.details.get("mig_instances") == 0 and not gpu.mig_profiles:
        yield HostFinding(
            "mig",
            "fail",
            f"{label}: MIG is enabled and there is no instance: CUDA finds no device",
            "nvidia-smi mig -cgi … -C, or switch MIG off",
            "https://docs.nvidia.com/datacenter/tesla/mig-user-guide/",
        )
    elif gpu.mig:
        yield HostFinding(
            "mig",
            "warn",
            f"{label}: MIG is enabled: a process gets one slice, NCCL does not span slices",
            "rent whole cards for multi-GPU work",
            "https://docs.nvidia.com/datacenter/tesla/mig-user-guide/",
        )
    pending = gpu.details.get("mig_pending")
    if (
        pending
        and gpu.mig is not None
        and str(pending).lower() in ("enabled", "disabled")
        and (str(pending).lower() == "enabled") != gpu.mig
    ):
        yield HostFinding(
            "mig-pending", "warn", f"{label}: MIG mode changes to {pending} at the next reset", "reset the GPU", _SMI
        )


def _licence(gpu: Gpu, label: str) -> Iterator[HostFinding]:
    licence = str(gpu.details.get("vgpu_license") or "")
    if "unlicensed" in licence.lower():
        yield HostFinding(
            "vgpu-licence",
            "fail",
            f"{label}: the vGPU has no licence: it is slowed down after a while",
            "ask the provider to license it",
            "https://docs.nvidia.com/vgpu/latest/grid-licensing-user-guide/",
        )


def _memory(gpu: Gpu, label: str) -> Iterator[HostFinding]:
    if gpu.memory_mib is None or gpu.mig or gpu.name.startswith("MIG"):
        return
    card = card_of(gpu, load())
    if card.vgpu or card.mig:
        yield HostFinding(
            "sliced", "warn", f"{label}: a slice of a card (vGPU or MIG), {gpu.memory_mib} MiB", "ask what share it is"
        )
        return
    sizes = [
        m.memory_mib
        for m in load().gpus
        if m.memory_mib and (m.name == gpu.name or m.name in card.models or m is card.model)
    ]
    if not sizes:
        return
    if all(gpu.memory_mib > size * (1 + 2 * _MEMORY_TOLERANCE) for size in sizes):
        yield HostFinding(
            "memory-size",
            "warn",
            f"{label}: {gpu.memory_mib} MiB where this card has {max(sizes)}: a modded card",
            "no warranty, no vendor support; test its memory before paying",
        )
    elif all(gpu.memory_mib < size * (1 - 2 * _MEMORY_TOLERANCE) for size in sizes):
        yield HostFinding(
            "memory-size",
            "warn",
            f"{label}: {gpu.memory_mib} MiB where this card has {min(sizes)}: a slice, or another card",
            "ask the provider; compare PCI id and SM count",
        )


def _busy(gpu: Gpu, label: str) -> Iterator[HostFinding]:
    used = gpu.details.get("memory_used_mib")
    if used and gpu.memory_mib and used > 0.25 * gpu.memory_mib:
        yield HostFinding(
            "memory-in-use",
            "warn",
            f"{label}: {used} of {gpu.memory_mib} MiB in use already",
            "see which processes hold it (nvidia-smi); on a rental nothing should",
        )


_RULES: tuple[Rule, ...] = (
    _unknown,
    _identity,
    _ecc,
    _heat,
    _persistence,
    _remapping,
    _recovery,
    _fabric,
    _throttling,
    _link,
    _mode,
    _mig,
    _licence,
    _memory,
    _busy,
)


def _mixed(host: Host) -> Iterator[HostFinding]:
    names = sorted({gpu.name for gpu in host.gpus})
    if len(names) > 1:
        yield HostFinding(
            "mixed-gpus",
            "warn",
            f"cards of different kinds: {', '.join(names)}",
            "every card must be able to run the build; the slowest sets the pace of collectives",
        )


def _driver(host: Host) -> Iterator[HostFinding]:
    if not host.driver or not host.gpus:
        return
    branch = int(host.driver.split(".")[0]) if host.driver.split(".")[0].isdigit() else 0
    by_capability = {a.compute_capability: a for a in load().architectures}
    for capability in sorted({g.compute_capability for g in host.gpus if g.compute_capability}):
        row = by_capability.get(capability)
        if row is None:
            continue
        first = int("".join(c for c in (row.first_driver_branch or "") if c.isdigit()) or 0)
        last = int("".join(c for c in (row.last_driver_branch or "") if c.isdigit()) or 0)
        if first and branch < first:
            yield HostFinding(
                "driver-too-old",
                "warn",
                f"driver {host.driver} is older than branch R{first}, the first for compute capability {capability}",
                f"update the driver to R{first} or newer",
                row.source,
            )
        if last and branch > last:
            yield HostFinding(
                "driver-too-new",
                "warn",
                f"driver branch R{branch} no longer knows compute capability {capability} "
                f"({row.name}); the last is R{last}",
                f"install a driver of branch R{last}",
                row.source,
            )
    if branch and branch < 450:
        yield HostFinding(
            "driver-old",
            "warn",
            f"driver {host.driver} is too old for CUDA 11 and newer builds",
            "ask for a driver of branch 535 or newer",
            "https://docs.nvidia.com/deploy/cuda-compatibility/",
        )


@lru_cache(maxsize=1)
def _ends() -> dict[int, str]:
    text = resources.files("gpuimg.host").joinpath("data/driver_branches.yaml").read_text(encoding="utf-8")
    return {int(branch): str(month) for branch, month in yaml.safe_load(text).items()}


def _branch(host: Host) -> Iterator[HostFinding]:
    if not host.driver or not host.gpus or host.details.get("windows") or host.runtime == "wsl2":
        return
    number = host.driver.split(".")[0]
    end = _ends().get(int(number)) if number.isdigit() else None
    if end and end < datetime.date.today().strftime("%Y-%m"):
        yield HostFinding(
            "driver-end-of-life",
            "warn",
            f"driver branch R{number} has had no updates since {end} (data-centre support ended)",
            "ask for a supported branch (R580 or newer; R580 at most on Maxwell, Pascal and Volta)",
            _BRANCHES,
        )


def _agreement(host: Host) -> Iterator[HostFinding]:
    """driver_cuda above what that driver knows: a cuda-compat libcuda answers in the driver's place."""
    if not host.driver or not host.driver_cuda or host.details.get("windows") or host.runtime == "wsl2":
        return
    first = load().first_driver(host.driver_cuda)
    if first is None or not all(part.isdigit() for part in host.driver.split(".")):
        return
    if tuple(int(p) for p in host.driver.split(".")) < tuple(int(p) for p in first.split(".")):
        table = load().driver_cuda(host.driver)
        own = f"CUDA {table}" if table else "an older CUDA"
        yield HostFinding(
            "driver-cuda-mismatch",
            "warn",
            f"driver {host.driver} is one of {own}, and the text says driver_cuda {host.driver_cuda} (which came with "
            f"{first}): inside a container with cuda-compat on the loader's path, or two sources mixed",
            f"count on driver_cuda {table or 'of the driver itself'}; run nvidia-smi on the host itself",
            "https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html",
        )


def _nothing_found(host: Host) -> Iterator[HostFinding]:
    """What was looked at, so that silence is not taken for a check."""
    looked = {
        "ECC errors": any(
            g.ecc and ("ecc_uncorrected" in g.details or "remap_pending" in g.details) for g in host.gpus
        ),
        "remapped rows": any("remap_pending" in g.details for g in host.gpus),
        "throttling": any("throttle" in g.details or "throttle_us" in g.details for g in host.gpus),
        "PCIe link": any("pcie_width" in g.details for g in host.gpus),
        "compute mode": any("compute_mode" in g.details for g in host.gpus),
        "NVSwitch fabric": any("fabric_state" in g.details for g in host.gpus),
        "memory size": any(g.memory_mib for g in host.gpus),
    }
    seen = [name for name, there in looked.items() if there]
    if seen:
        yield HostFinding("health", "ok", f"nothing wrong in what was pasted: {', '.join(seen)}", None, _SMI)


def _windows(host: Host) -> Iterator[HostFinding]:
    if host.details.get("windows") and host.runtime != "wsl2":
        yield HostFinding(
            "windows",
            "warn",
            "a Windows host (driver model WDDM or TCC): Linux GPU containers run there only through WSL2",
            "use WSL2 with a recent Windows and driver, or rent a Linux server",
            "https://docs.nvidia.com/cuda/wsl-user-guide/index.html",
        )
