"""card.*: is each visible GPU what it says, whole, unworn and free. NVML and libcuda only; no framework."""

from __future__ import annotations

import re
from typing import Any

from . import judge_card
from .cards import by_name, by_pci
from .judge_host import Problem
from .nvml import Nvml, NvmlError, throttle_names
from .registry import Context, Outcome, check, failed, passed, skipped


def _verdict(
    per_gpu: dict[int, list[Problem]], measured: dict[str, Any], expected: dict[str, Any] | None = None
) -> Outcome:
    several = len(per_gpu) > 1
    words = [f"GPU {i}: {p.what}" if several else p.what for i, found in per_gpu.items() for p in found]
    if not words:
        return passed(measured, expected)
    fixes = dict.fromkeys(p.fix for found in per_gpu.values() for p in found)
    return failed("; ".join(words), "; ".join(fixes), measured, expected)


@check(
    "card.identity",
    title="Card is what it is called",
    proves="not relabelled, modded or sliced: name, PCI id, compute capability, memory and SM count fit together",
    how="NVML and libcuda facts of each GPU against the knowledge base, by PCI device id first and name second",
    threshold="same model by id and name; memory within 10 % (ECC takes a sixteenth of GDDR); SM count as published; "
    "no MIG or vGPU slice unless the profile allows it",
    source="knowledge base of cards; a cloud that answered an H100 order with H200; 8 x '4090 D' with 49140 MiB",
    needs=("gpu",),
    light=True,
)
def card_identity(ctx: Context) -> Outcome:
    problems: dict[int, list[Problem]] = {}
    measured: dict[str, Any] = {"gpus": []}
    expected: dict[str, Any] = {"gpus": []}
    unknown = []
    keys = ("name", "cuda_name", "pci_device_id", "pci_subsystem_id", "compute_capability", "memory_mib", "sm_count")
    for i, gpu in enumerate(ctx.gpus):
        row, same = by_name(str(gpu.get("name", ""))), by_pci(str(gpu.get("pci_device_id", "")))
        measured["gpus"].append({k: gpu[k] for k in (*keys, "vbios", "mig", "ecc") if gpu.get(k) is not None})
        if row is not None:
            expected["gpus"].append(
                {k: row[k] for k in ("name", "pci_ids", "compute_capability", "memory_mib") if k in row}
            )
            if "sm_count" in row:
                expected["gpus"][-1]["sm_count"] = row["sm_count"]
        problems[i] = judge_card.identity_problems(gpu, row, same, bool(ctx.floor("allow_slice", False)))
        if row is None and not problems[i]:
            if same:
                problems[i] = [
                    Problem(
                        f"its name {gpu.get('name')!r} is not that of PCI id {gpu.get('pci_device_id')}, "
                        f"{' or '.join(r['name'] for r in same)}",
                        "return the server: the card is not what it is called",
                    )
                ]
            else:
                unknown.append(str(gpu.get("name")))
    outcome = _verdict(problems, measured, expected)
    if outcome.status == "pass" and unknown:
        return skipped(f"the knowledge base does not know {', '.join(unknown)}", measured)
    return outcome


@check(
    "card.link",
    title="PCIe link is whole",
    proves="the card sits in a slot as wide as it can use",
    how="NVML: current and largest link width and generation (the generation idles low and is not judged alone)",
    threshold="as wide as card and slot can, at least x8, slot generation ≥ 3",
    source="rental preflights fail below 2.85 GB/s; mining risers give x1",
    needs=("gpu",),
    light=True,
)
def card_link(ctx: Context) -> Outcome:
    keys = ("pcie_width", "pcie_width_max", "pcie_gen", "pcie_gen_max")
    measured = {"gpus": [{k: gpu.get(k) for k in keys} for gpu in ctx.gpus]}
    if not any(gpu.get("pcie_width_max") for gpu in ctx.gpus):
        return skipped("NVML does not tell the link here", measured)
    problems = {
        i: judge_card.link_problems(gpu, ctx.card(i), int(ctx.floor("min_width", 8))) for i, gpu in enumerate(ctx.gpus)
    }
    return _verdict(problems, measured, {"min_width": int(ctx.floor("min_width", 8))})


@check(
    "card.state",
    title="Card is free and unthrottled",
    proves="nobody else is on it, it is cool, and its power limit is the board's own",
    how="NVML before any load: power limit against the default, temperature, event reasons, memory in use",
    threshold="limit ≥ 90 % of the default, < 80 °C, no thermal or hardware slowdown, memory in use ≤ 2 GiB or 5 %",
    source="nvml.h, event reasons; mon.curve judges the same under load",
    needs=("gpu",),
    light=True,
)
def card_state(ctx: Context) -> Outcome:
    measured: dict[str, Any] = {"gpus": []}
    problems: dict[int, list[Problem]] = {}
    try:
        with Nvml() as nvml:
            for i, gpu in enumerate(ctx.gpus):
                sample = nvml.sample(int(gpu.get("index", i)))
                problems[i] = judge_card.held_back_problems(gpu, sample)
                row = {k: gpu.get(k) for k in ("power_limit_w", "power_default_w", "memory_used_mib", "memory_mib")}
                row.update(temp_c=sample.get("c"), reasons=throttle_names(int(sample.get("thr") or 0)))
                measured["gpus"].append(row)
    except NvmlError as error:
        return skipped(f"NVML is not readable here: {error}")
    return _verdict(problems, measured)


@check(
    "card.wear",
    title="Card is not worn out",
    proves="its memory has spare rows left and no uncorrectable errors, and the kernel log holds no fatal Xid",
    how="NVML: ECC counters, remapped rows, retired pages, PCIe replays; Xid lines of a readable kernel log",
    threshold="remapping failed or pending: 0, rows remapped ≤ 512; uncorrectable errors since boot: 0; corrected ≤ 2e7; "
    "retired pages < 62; no fatal Xid",
    source="AzNHC health checks; https://docs.nvidia.com/deploy/xid-errors/",
    needs=("gpu",),
    light=True,
)
def card_wear(ctx: Context) -> Outcome:
    log = kernel_log()
    xids = None if log is None else find_xids(log)
    measured: dict[str, Any] = {"gpus": [], "xids": xids if xids is not None else "not readable in this container"}
    problems: dict[int, list[Problem]] = {}
    readable = False
    try:
        with Nvml() as nvml:
            for i, gpu in enumerate(ctx.gpus):
                wear = nvml.wear(int(gpu.get("index", i)))
                readable = readable or any(k not in ("index", "unread") and v is not None for k, v in wear.items())
                bus = str(gpu.get("pci_bus_id", ""))[-10:].lower()
                mine = [number for where, number in xids or [] if not bus or where.lower().endswith(bus.split(".")[0])]
                problems[i] = judge_card.wear_problems({**wear, "xids": mine})
                measured["gpus"].append(wear)
    except NvmlError as error:
        return skipped(f"NVML is not readable here: {error}")
    if not readable and not any(problems.values()):
        return skipped("this card or container gives no wear counters", measured)
    return _verdict(problems, measured)


def kernel_log() -> str | None:
    """The kernel's log through /dev/kmsg, or None when it may not be read (the usual case in a container)."""
    import os

    try:
        fd = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    pieces = []
    try:
        while True:
            pieces.append(os.read(fd, 8192).decode("utf-8", "replace"))
    except BlockingIOError:
        pass
    except OSError:
        return None if not pieces else "\n".join(pieces)
    finally:
        os.close(fd)
    return "\n".join(pieces)


def find_xids(log: str) -> list[tuple[str, int]]:
    """``[(PCI address, number), …]`` of the NVRM Xid lines of a kernel log."""
    return [(bus, int(n)) for bus, n in re.findall(r"NVRM: Xid \(PCI:([0-9a-fA-F:.]+)\): (\d+)", log)]
