"""The knowledge base's cards, as the suite carries them: ``data/cards.json``, written by ``bin/update_suite_cards``."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from .registry import read_data


@lru_cache(maxsize=None)
def table() -> tuple[dict[str, Any], ...]:
    """Every row. Units as in the knowledge base: GB/s, dense TFLOP/s, MiB, W."""
    return tuple(json.loads(read_data("cards.json").decode("utf-8"))["cards"])


def by_name(name: str) -> dict[str, Any] | None:
    """The row of a name as nvidia-smi prints it (older drivers leave 'NVIDIA ' out)."""
    wanted = name.strip()
    for row in table():
        if row["name"] == wanted or row["name"] == "NVIDIA " + wanted:
            return row
    return None


def by_pci(device_id: str) -> list[dict[str, Any]]:
    """Rows with this PCI device id (A2 and A16 share one)."""
    return [row for row in table() if device_id.upper() in row.get("pci_ids", ())]


def row_of(gpu: dict[str, Any]) -> dict[str, Any] | None:
    """The row of a visible GPU: PCI id first, then name among rows of that id, then name alone."""
    rows = by_pci(str(gpu.get("pci_device_id", ""))) if gpu.get("pci_device_id") else []
    named = by_name(str(gpu.get("name", "")))
    if rows:
        return named if named in rows else rows[0]
    return named


def driver_tables() -> dict[str, Any]:
    """``{"native": {"12.4": "550.54.14", …}, "minor_compat": {"12": "525.60.13", …}}``."""
    tables: dict[str, Any] = json.loads(read_data("cards.json").decode("utf-8"))["drivers"]
    return tables
