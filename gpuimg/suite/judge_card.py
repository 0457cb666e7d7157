"""Pure rules about a card: is it what it says, is it whole, is it worn, is it held back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .judge_host import Problem
from .nvml import throttle_names

NVIDIA_VENDOR = "10DE"


def _plain(name: str) -> str:
    return name.replace("NVIDIA ", "").strip().lower()


def identity_problems(
    gpu: Mapping[str, Any],
    row: Mapping[str, Any] | None,
    same_pci: Sequence[Mapping[str, Any]],
    allow_slice: bool = False,
) -> list[Problem]:
    """A visible GPU against the knowledge base. ``row``: by name; ``same_pci``: rows with its PCI device id.

    Rules: PCI vendor is NVIDIA; name, PCI id and compute capability belong together; memory within 2 % (ECC can take
    a sixteenth of GDDR); SM count as published; a MIG or vGPU slice is said to be one.
    """
    problems: list[Problem] = []
    name = str(gpu.get("name") or "")
    cheat = "return the server: the card is not what it is called"
    vendor = gpu.get("pci_vendor_id")
    if vendor is not None and str(vendor).upper() != NVIDIA_VENDOR:
        problems.append(Problem(f"PCI vendor {vendor} is not NVIDIA ({NVIDIA_VENDOR})", cheat))
    sliced = _slice_of(gpu)
    if sliced is not None and not allow_slice:
        problems.append(
            Problem(f"this is a slice of a card: {sliced}", "rent a whole card, or ask for the price of a slice")
        )
    cuda_name = gpu.get("cuda_name")
    if cuda_name and name and _plain(str(cuda_name)) != _plain(name) and sliced is None:
        problems.append(Problem(f"NVML calls it {name!r}, the CUDA driver {cuda_name!r}", cheat))
    if same_pci and row is not None and row["name"] not in [other["name"] for other in same_pci]:
        problems.append(
            Problem(
                f"it is called {name!r}, but PCI id {gpu.get('pci_device_id')} is "
                f"{' or '.join(other['name'] for other in same_pci)}",
                cheat,
            )
        )
    if row is None or sliced is not None:
        return problems
    have, want = gpu.get("compute_capability"), row.get("compute_capability")
    if have and want and have != want:
        problems.append(Problem(f"compute capability {have}; {row['name']} has {want}", cheat))
    memory, published = gpu.get("memory_mib"), row.get("memory_mib")
    if memory and published:
        ratio = float(memory) / float(published)
        if ratio > 1.10:
            problems.append(
                Problem(
                    f"{memory} MiB; {row['name']} has {published}: a modded board",
                    "no vendor stands behind it; test it under load for hours, or return it",
                )
            )
        elif ratio < 0.90:
            problems.append(Problem(f"{memory} MiB; {row['name']} has {published}: part of it, or another card", cheat))
    sms, full = gpu.get("sm_count"), row.get("sm_count")
    if sms and full and sms != full:
        problems.append(Problem(f"{sms} SMs; {row['name']} has {full}", cheat))
    return problems


def _slice_of(gpu: Mapping[str, Any]) -> str | None:
    """What kind of slice a GPU is, or None for a whole card."""
    for key in ("cuda_name", "name"):
        name = str(gpu.get(key) or "")
        if " MIG " in name:
            return name
        if "GRID" in name or "vGPU" in name:
            return name
    if gpu.get("mig"):
        return "MIG mode is on"
    if gpu.get("virtualization") == 3:  # nvmlGpuVirtualizationMode: 3 host vGPU, 2 guest vGPU, 1 passthrough
        return "the host shares it as vGPU"
    if gpu.get("virtualization") == 2:
        return "a vGPU guest"
    return None


def link_problems(gpu: Mapping[str, Any], row: Mapping[str, Any] | None, min_width: int = 8) -> list[Problem]:
    """PCIe link: as wide as card and slot can be, and at least ``min_width`` lanes. Generation idles low."""
    problems = []
    width, widest = gpu.get("pcie_width"), gpu.get("pcie_width_max")
    if width and widest and width < widest:
        problems.append(
            Problem(
                f"the link runs at x{width} of x{widest}",
                "a bad riser, a shared or dirty slot: the provider should reseat the card",
            )
        )
    if widest and widest < min_width:
        problems.append(Problem(f"the slot gives x{widest} at most", "loading data will be slow: another server"))
    newest, card = gpu.get("pcie_gen_max"), (row or {}).get("pcie_gen")
    if newest and card and newest < min(int(card), 3):
        problems.append(Problem(f"the slot is PCIe generation {newest}", "a mining board: another server"))
    return problems


def held_back_problems(gpu: Mapping[str, Any], sample: Mapping[str, Any]) -> list[Problem]:
    """Before any load: a lowered power limit, heat, a hardware slowdown, memory in somebody else's hands."""
    problems = []
    limit, default = gpu.get("power_limit_w"), gpu.get("power_default_w")
    if limit and default and float(limit) < 0.9 * float(default):
        problems.append(
            Problem(
                f"the power limit is {float(limit):.0f} W of {float(default):.0f} W",
                "the owner throttles the card: nvidia-smi -pl sets it back (by root of the host)",
            )
        )
    bits = int(sample.get("thr") or 0)
    bad = [n for n in throttle_names(bits) if n in BAD_REASONS]
    if bad:
        problems.append(Problem(f"already held back while idle: {', '.join(bad)}", "heat or a weak power supply"))
    if sample.get("c") is not None and float(sample["c"]) >= 80:
        problems.append(Problem(f"{sample['c']} °C before any load", "its cooling is broken: another server"))
    used, memory = gpu.get("memory_used_mib"), gpu.get("memory_mib")
    if used and memory and float(used) > max(2048.0, 0.05 * float(memory)):
        problems.append(
            Problem(
                f"{used} of {memory} MiB are in use before we start",
                "another process or tenant holds the card: nvidia-smi on the host shows which",
            )
        )
    return problems


BAD_REASONS = ("hw_slowdown", "hw_thermal_slowdown", "sw_thermal_slowdown", "hw_power_brake_slowdown")

RETIRED_PAGES_LIMIT = 62
"""Pages: AzNHC fails a V100 at 62 (the driver cannot retire more than 64)."""
REMAPPED_LIMIT = 512
"""Rows remapped after uncorrectable errors: above it AzNHC means to fail; a few are what the spare rows are for."""
CORRECTED_LIMIT = 20_000_000
"""Corrected errors over a card's life: AzNHC 2e7."""
XID_FATAL = (48, 62, 63, 64, 74, 79, 92, 94, 95, 119, 120, 140)
"""Xid numbers that mean hardware or a lost card (NVIDIA's Xid table, AzNHC's list)."""


def wear_problems(wear: Mapping[str, Any]) -> list[Problem]:
    """Counters of :meth:`.nvml.Nvml.wear` and ``xids`` (list of numbers since boot). None means not supported."""
    problems = []
    bad = "the card's memory is failing: return the server"
    rows = wear.get("remapped_rows") or {}
    if rows.get("failed"):
        problems.append(Problem("a row remapping failed: no spare rows are left in a bank", bad))
    if rows.get("pending"):
        problems.append(Problem("a row remapping is pending", "the host must reset the GPU or reboot first"))
    if (rows.get("uncorrectable") or 0) > REMAPPED_LIMIT:
        problems.append(Problem(f"{rows['uncorrectable']} rows were remapped after uncorrectable errors", bad))
    if wear.get("ecc_uncorrected_volatile"):
        problems.append(Problem(f"{wear['ecc_uncorrected_volatile']} uncorrectable memory errors since boot", bad))
    corrected = wear.get("ecc_corrected_aggregate")
    if corrected and corrected > CORRECTED_LIMIT:
        problems.append(Problem(f"{corrected} corrected memory errors over its life", bad))
    retired = (wear.get("retired_pages_sbe") or 0) + (wear.get("retired_pages_dbe") or 0)
    if retired >= RETIRED_PAGES_LIMIT:
        problems.append(Problem(f"{retired} memory pages are retired", bad))
    fatal = sorted({xid for xid in wear.get("xids") or () if xid in XID_FATAL})
    if fatal:
        problems.append(Problem(f"the kernel log holds Xid {', '.join(map(str, fatal))}", bad))
    return problems
