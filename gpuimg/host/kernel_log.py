"""Kernel log lines about NVIDIA cards: Xid errors, cards off the bus, modules that refuse a card, PCIe errors."""

from __future__ import annotations

import re

from gpuimg.host.readings import Readings
from gpuimg.knowledge.xids import Xid, xids
from gpuimg.nouns import HostFinding, Severity

_XID = re.compile(r"(?<!S)Xid\s*\((?:PCI:)?([0-9A-Fa-f:.]+)\):\s*(\d+)(?:,\s*(.*))?", re.I)
_REPEATED = 3
"""So many of a program-fault Xid from one card is worth a look at the card."""

_LINES: tuple[tuple[str, str, Severity, str, str], ...] = (
    (
        r"fallen off the bus",
        "off-the-bus",
        "fail",
        "a GPU has fallen off the bus",
        "power-cycle the server; check power, riser and temperature; exchange the card if it repeats",
    ),
    (
        r"not supported by open\b.*(?:nvidia\.ko|kernel)|not supported by open NVRM",
        "open-module",
        "fail",
        "the open kernel modules refuse this card: they need a GSP (Turing or newer)",
        "install the proprietary kernel modules (nvidia-driver-NNN without -open)",
    ),
    (
        r"requires use of the NVIDIA open kernel modules",
        "proprietary-module",
        "fail",
        "the proprietary kernel modules refuse this card: Blackwell and newer take only the open ones",
        "install the open kernel modules (nvidia-driver-NNN-open)",
    ),
    (
        r"API mismatch: the client has the version",
        "driver-mismatch",
        "fail",
        "user-space driver and loaded kernel module are of different versions",
        "reboot, or reload the nvidia modules",
    ),
    (
        r"RmInitAdapter failed",
        "init-failed",
        "fail",
        "the driver could not initialise a card (RmInitAdapter failed)",
        "reboot; check that the driver supports the card, power cables and PCIe seating",
    ),
    (
        r"This PCI I/O region assigned to your NVIDIA device is invalid",
        "bar-invalid",
        "fail",
        "the BIOS gave the card no valid PCI memory region",
        "enable Above 4G Decoding (and Resizable BAR) in the BIOS, or pass pci=realloc to the kernel",
    ),
    (
        r"probe of .* failed with error -1|No NVIDIA (?:GPU|devices) probed",
        "probe-failed",
        "fail",
        "the kernel module found no card that it drives",
        "check lspci; install the driver flavour that fits the card",
    ),
    (
        r"module verification failed|Required key not available|Key was rejected by service",
        "secure-boot",
        "fail",
        "Secure Boot keeps the unsigned nvidia module out",
        "enrol the module's key (mokutil), or switch Secure Boot off",
    ),
    (
        r"nouveau.*(?:fault|failed|unknown chipset)|nouveau: detected",
        "nouveau",
        "warn",
        "nouveau is loaded",
        "blacklist nouveau and reboot",
    ),
    (
        r"AER:.*Uncorrected \(Fatal\)|severity=Uncorrected \(Fatal\)",
        "pcie-aer",
        "fail",
        "fatal PCIe errors (AER)",
        "reseat the card and riser; exchange the slot, riser or card",
    ),
    (
        r"AER:.*(?:Corrected|Correctable)|severity=Corrected",
        "pcie-aer",
        "warn",
        "corrected PCIe errors (AER)",
        "a few are harmless; many mean a bad riser, slot or cable: reseat it",
    ),
    (
        r"Out of memory: Kill(?:ed)? process|oom-kill|oom_reaper",
        "oom-killer",
        "warn",
        "the kernel killed a program for lack of main memory",
        "rent more RAM, or raise the container's memory limit",
    ),
    (
        r"NVRM: GPU .*: (?:GSP|RPC).*(?:timeout|failed)",
        "gsp",
        "fail",
        "the GPU's firmware (GSP) does not answer",
        "power-cycle the server; update the driver",
    ),
    (r"SXid", "sxid", "fail", "NVSwitch errors (SXid)", "reset GPUs and switches; call the provider if it repeats"),
)


def read_kernel_log(text: str) -> Readings | None:
    """None when no line is of interest."""
    out = Readings()
    seen: dict[tuple[str, int], int] = {}
    words: dict[tuple[str, int], str] = {}
    for line in text.splitlines():
        found = _XID.search(line)
        if found:
            key = (_short(found.group(1)), int(found.group(2)))
            seen[key] = seen.get(key, 0) + 1
            words.setdefault(key, (found.group(3) or "").strip())
        for pattern, rule, severity, what, fix in _LINES:
            if re.search(pattern, line, re.I) and not any(f.rule == rule for f in out.findings):
                out.findings.append(HostFinding(rule, severity, f"{what}: {line.strip()[:160]}", fix))
    catalogue = xids()
    for (bus, number), count in sorted(seen.items()):
        row = catalogue.get(number) or _unknown(number)
        how_bad: Severity = "fail" if row.severity == "fail" else "ok" if row.severity == "ok" else "warn"
        times = f" ({count} times)" if count > 1 else ""
        kind = "; a program's fault" if row.severity == "app" and count < _REPEATED else ""
        said = f" [{words[bus, number][:100]}]" if words[bus, number] else ""
        out.findings.append(
            HostFinding(
                "xid",
                how_bad,
                f"Xid {number} on {bus}{times}: {row.meaning}{kind}{said}",
                row.fix,
                row.source,
            )
        )
    if not out.findings:
        return None
    out.details["kernel_log"] = True
    return out


def _unknown(number: int) -> Xid:
    return Xid(
        number,
        "not in our catalogue",
        "warn",
        "look it up in NVIDIA's list",
        "https://docs.nvidia.com/deploy/xid-errors/",
    )


def _short(bus: str) -> str:
    """'0000:c1:00' as the log writes it, without a trailing function."""
    return re.sub(r"\.\d$", "", bus)
