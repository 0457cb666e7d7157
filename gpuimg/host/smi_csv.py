"""``nvidia-smi --query-gpu=… --format=csv`` with any columns, with or without units or header; and ``nvidia-smi -L``."""

from __future__ import annotations

import csv
import re
from typing import Any

from gpuimg.host.readings import Readings, device_id, given, number, whole, yes
from gpuimg.nouns import Gpu

_COLUMNS = {
    "power.limit": ("power_limit_w", number),
    "power.draw": ("power_w", number),
    "pstate": ("pstate", given),
    "memory.used": ("memory_used_mib", whole),
    "compute_mode": ("compute_mode", given),
    "persistence_mode": ("persistence", yes),
    "temperature.gpu": ("temperature_c", number),
    "pcie.link.gen.current": ("pcie_gen", whole),
    "pcie.link.gen.max": ("pcie_gen_max", whole),
    "pcie.link.width.current": ("pcie_width", whole),
    "pcie.link.width.max": ("pcie_width_max", whole),
    "remapped_rows.pending": ("remap_pending", yes),
    "remapped_rows.failure": ("remap_failure", yes),
    "remapped_rows.uncorrectable": ("remap_uncorrectable", whole),
    "remapped_rows.correctable": ("remap_correctable", whole),
    "retired_pages.double_bit.count": ("retired_dbe", whole),
    "retired_pages.sbe": ("retired_sbe", whole),
    "retired_pages.dbe": ("retired_dbe", whole),
    "retired_pages.pending": ("retired_pending", yes),
    "fabric.state": ("fabric_state", given),
    "fabric.status": ("fabric_status", given),
    "utilization.gpu": ("utilisation", whole),
    "driver_model.current": ("driver_model", given),
    "mig.mode.pending": ("mig_pending", given),
    "gpu_recovery_action": ("recovery_action", given),
    "pcie.replay_counter": ("pcie_replays", whole),
}
_NAME_FIRST = re.compile(r"^\s*(?:\d+\s*,\s*)?(NVIDIA|Tesla|GeForce|Quadro|TITAN|GRID|RTX)\b.*,")
_LIST = re.compile(r"^\s*GPU\s+(\d+):\s*(.+?)\s*\(UUID:\s*(GPU-[0-9a-fA-F-]+)\)")
_LIST_MIG = re.compile(r"^\s*MIG\s+(\S+)\s+Device\s+(\d+):\s*\(UUID:\s*(MIG-\S+)\)")


def read_csv(text: str) -> Readings | None:
    """None when no line is a CSV header of nvidia-smi or a row that begins with a card's name."""
    lines = [line for line in text.splitlines() if "," in line]
    head = next((i for i, line in enumerate(lines) if _is_header(line)), None)
    if head is not None:
        columns = [_column(c) for c in lines[head].split(",")]
        rows = [r for r in csv.reader(lines[head + 1 :], skipinitialspace=True) if len(r) == len(columns)]
        pairs = [dict(zip(columns, row, strict=True)) for row in rows]
    else:
        rows = list(csv.reader((x for x in lines if _NAME_FIRST.match(x)), skipinitialspace=True))
        pairs = [_guess(row) for row in rows]
    out = Readings()
    for place, row in enumerate(pairs):
        out.driver = out.driver or given(row.get("driver_version"))
        out.gpus.append(_gpu(place, row))
    out.gpus = [gpu for gpu in out.gpus if gpu.name]
    return None if out.empty() else out


def read_list(text: str) -> Readings | None:
    """``nvidia-smi -L``."""
    out = Readings()
    for line in text.splitlines():
        card, mig = _LIST.match(line), _LIST_MIG.match(line)
        if card:
            out.gpus.append(Gpu(name=card.group(2), index=int(card.group(1)), uuid=card.group(3)))
        elif mig and out.gpus:
            last = out.gpus[-1]
            out.gpus[-1] = Gpu(
                name=last.name,
                index=last.index,
                uuid=last.uuid,
                mig=True,
                mig_profiles=(*last.mig_profiles, mig.group(1)),
            )
    return None if not out.gpus else out


def _column(text: str) -> str:
    return re.sub(r"\s*\[.*?\]", "", text).strip().lower().lstrip("\ufeff# ")


def _is_header(line: str) -> bool:
    names = {_column(c) for c in line.split(",")}
    known = {
        "name",
        "gpu_name",
        "driver_version",
        "compute_cap",
        "memory.total",
        "uuid",
        "gpu_uuid",
        "pci.bus_id",
        "index",
    }
    return len(names & known) >= 1 and (len(names & (known | set(_COLUMNS))) >= 2)


def _guess(row: list[str]) -> dict[str, str]:
    """A row without header: each value by what it looks like."""
    out: dict[str, str] = {}
    for value in row:
        text = value.strip()
        if re.match(r"(NVIDIA|Tesla|GeForce|Quadro|TITAN|GRID|RTX)\b", text):
            out["name"] = text
        elif re.fullmatch(r"\d{3}\.\d{2,3}(\.\d{2})?", text):
            out["driver_version"] = text
        elif re.fullmatch(r"\d{1,2}\.\d", text):
            out["compute_cap"] = text
        elif re.fullmatch(r"\d+ MiB", text) and "memory.total" not in out:
            out["memory.total"] = text
        elif text.startswith("GPU-"):
            out["uuid"] = text
        elif re.fullmatch(r"\d{4,6}", text) and "memory.total" not in out and "name" in out:
            out["memory.total"] = text
    return out


def _gpu(place: int, row: dict[str, str]) -> Gpu:
    details: dict[str, Any] = {}
    for column, (name, read) in _COLUMNS.items():
        value = read(row.get(column))
        if value is not None:
            details[name] = value
    uncorrected = whole(row.get("ecc.errors.uncorrected.volatile.total"))
    if uncorrected:
        details["ecc_dram_uncorrected_volatile"] = uncorrected
    aggregate = whole(row.get("ecc.errors.uncorrected.aggregate.total"))
    if aggregate:
        details["ecc_dram_uncorrected_aggregate"] = aggregate
    bits = given(row.get("clocks_event_reasons.active") or row.get("clocks_throttle_reasons.active"))
    if bits and re.fullmatch(r"0x[0-9a-fA-F]+", bits):
        details["throttle"] = _bits(int(bits, 16))
    named = [
        re.sub(r"^clocks_(?:event|throttle)_reasons\.", "", column).replace("_", " ")
        for column, value in row.items()
        if re.match(r"clocks_(?:event|throttle)_reasons\.(?!active|supported)", column) and value.strip() == "Active"
    ]
    if named:
        details["throttle"] = named
    return Gpu(
        name=(row.get("name") or row.get("gpu_name") or "").strip(),
        index=whole(row.get("index")) if row.get("index") else place,
        compute_capability=given(row.get("compute_cap")),
        memory_mib=whole(row.get("memory.total")),
        pci_id=device_id(row.get("pci.device_id")),
        bus_id=given(row.get("pci.bus_id") or row.get("gpu_bus_id")),
        uuid=given(row.get("uuid") or row.get("gpu_uuid")),
        mig=yes(row.get("mig.mode.current")),
        ecc=yes(row.get("ecc.mode.current")),
        details=details,
    )


def _bits(mask: int) -> list[str]:
    """nvmlClocksEventReasons bits: https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html"""
    names = {
        0x1: "gpu idle",
        0x2: "applications clocks setting",
        0x4: "sw power cap",
        0x8: "hw slowdown",
        0x10: "sync boost",
        0x20: "sw thermal slowdown",
        0x40: "hw thermal slowdown",
        0x80: "hw power brake slowdown",
        0x100: "display clock setting",
    }
    return [name for bit, name in names.items() if mask & bit]
