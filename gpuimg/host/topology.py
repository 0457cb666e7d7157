"""``nvidia-smi topo -m``: how the cards are linked."""

from __future__ import annotations

import re

from gpuimg.host.readings import Readings
from gpuimg.nouns import HostFinding

_SOURCE = "https://docs.nvidia.com/deploy/nvidia-smi/index.html"
_LINK = re.compile(r"X|NV\d+|PIX|PXB|PHB|NODE|SYS|SOC")


def read_topology(text: str) -> Readings | None:
    """None when the text is no such matrix. A path over PCIe or sockets is never a fault, only worth knowing."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    rows: dict[int, list[str]] = {}
    for line in plain.splitlines():
        found = re.match(r"\s*GPU(\d+)\s+(.*)", line)
        if found and _LINK.match(found.group(2).strip().split()[0] if found.group(2).split() else ""):
            rows[int(found.group(1))] = found.group(2).split()
    if not rows:
        return None
    count = len(rows)
    links = {
        (a, b): rows[a][place]
        for a in rows
        for place, b in enumerate(sorted(rows))
        if a < b and place < len(rows[a]) and _LINK.fullmatch(rows[a][place])
    }
    out = Readings()
    out.details["topology"] = {f"{a}-{b}": kind for (a, b), kind in sorted(links.items())}
    out.details["gpu_count"] = count
    kinds = sorted(set(links.values()))
    nvlinked = sum(1 for kind in links.values() if kind.startswith("NV"))
    text_kinds = ", ".join(kinds)
    if not links:
        evidence = f"{count} card{'s' if count > 1 else ''}"
    elif nvlinked == len(links):
        evidence = f"{count} cards, every pair over NVLink ({text_kinds})"
    elif nvlinked:
        evidence = f"{count} cards; {nvlinked} of {len(links)} pairs over NVLink, the others over PCIe ({text_kinds})"
    else:
        evidence = f"{count} cards, linked over PCIe only ({text_kinds})"
    out.findings.append(HostFinding("topology", "ok", evidence, None, _SOURCE))
    if any(kind in ("SYS", "SOC") for kind in kinds):
        out.findings.append(
            HostFinding(
                "topology-numa",
                "warn",
                "some pairs are linked across CPU sockets (SYS): collectives are slower there",
                "bind processes to NUMA nodes; prefer cards under one socket",
                _SOURCE,
            )
        )
    return out
