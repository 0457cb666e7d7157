"""The table that plain ``nvidia-smi`` prints, of any driver since 2013, cut off or with other text around it."""

from __future__ import annotations

import re
from dataclasses import replace

from gpuimg.host.readings import Readings, whole
from gpuimg.nouns import Gpu, HostFinding

_BANNER = re.compile(r"NVIDIA-SMI\s+([\d.]+|has)\b.*?(?:Driver Version:\s*([\d.]+|N/A))?", re.I)
_DRIVER = re.compile(r"Driver Version:\s*(\d[\d.]*)", re.I)
_CUDA = re.compile(r"CUDA Version:\s*(\d+\.\d+)", re.I)
_TOOL = re.compile(r"NVIDIA-SMI\s+(\d[\d.]*)", re.I)
_NAME_ROW = re.compile(
    r"(?:\||^)\s*(?P<index>\d+)\s+(?P<name>\S.*?)\s+(?P<persist>On|Off|TCC|WDDM|MCDM|N/A)\s*\|?"
    r"\s*(?P<bus>(?:[0-9A-Fa-f]{4,8}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)\s+(?P<disp>\S+)\s*\|?\s*(?P<ecc>\S+)"
)
_NAME_ONLY = re.compile(
    r"\|\s*(?P<index>\d+)\s+(?P<name>(?:NVIDIA|Tesla|GeForce|Quadro|TITAN|GRID|RTX|[A-Z]\d)\S*.*?)(?:\s{2,}|\s*\|)"
)
_READ_ROW = re.compile(
    r"(?:\||^)\s*(?P<fan>\d+%|N/A|ERR!?|\[N/A\])?\s*(?P<temp>\d+C|N/A|ERR!?)?\s*(?P<perf>P\d+|N/A|ERR!?)?\s+"
    r"(?P<power>[\d.]+W?|N/A|ERR!?|Unknown Error|\S+)\s*/\s*(?P<cap>[\d.]+W?|N/A|ERR!?)\s*(?:\S+\s*)?\|?"
    r"\s*(?P<used>\d+)\s*(?:MiB|MB)\s*/\s*(?P<total>\d+)\s*(?:MiB|MB)\s*\|?\s*(?P<util>\d+%|N/A|ERR!?)?\s*(?P<mode>[A-Z][\w. ]*?)?\s*(?:\||$)"
)
_MEMORY = re.compile(r"(\d+)\s*(?:MiB|MB)\s*/\s*(\d+)\s*(?:MiB|MB)")
_MIG_CELL = re.compile(r"\|\s*(Enabled|Disabled|N/A)\*?\s*\|\s*$")
_MIG_DEVICE = re.compile(r"^\|\s*(\d+)\s+(\d+|N/A)\s+(\d+)\s+(\d+)\s*\|\s*(\d+)\s*MiB\s*/\s*(\d+)\s*MiB")


def read_table(text: str) -> Readings | None:
    """None when the text holds no such table or banner."""
    if not (_TOOL.search(text) or re.search(r"\|\s*GPU\s+Name", text) or _NAME_ROW.search(text)):
        return None
    out = Readings()
    tool, driver, cuda = _TOOL.search(text), _DRIVER.search(text), _CUDA.search(text)
    # before driver 340 the banner had no separate field; on WSL2 and in containers the two differ and this one counts
    out.driver = driver.group(1) if driver else None
    out.driver_cuda = cuda.group(1) if cuda else None
    if tool:
        out.details["smi_version"] = tool.group(1)
        if out.driver is None:
            first = next((line for line in text.splitlines() if "NVIDIA-SMI" in line), "")
            out.driver = None if "Driver Version" in first else tool.group(1)
    current: dict[str, object] | None = None
    for line in text.splitlines():
        row = _NAME_ROW.search(line) or (None if _MEMORY.search(line) else _NAME_ONLY.search(line))
        if row and "PID" not in line and "Process" not in line:
            if "No running processes" in line or re.search(r"\s(?:C|G|C\+G)\s+\S*/", line):
                continue
            current = _begin(row)
            out.gpus.append(Gpu(**current))  # type: ignore[arg-type]
            continue
        if not out.gpus:
            continue
        mig = _MIG_DEVICE.match(line.strip())
        if mig:
            _add_mig(out, int(mig.group(1)), int(mig.group(6)))
            continue
        if re.search(r"Processes|PID\s+Type", line):
            current = None
        if current is not None:
            _continue(out, line)
    for gpu in out.gpus:
        if gpu.details.get("driver_model") in ("WDDM", "TCC", "MCDM"):
            out.details["windows"] = True
    if any("ERR!" in line for line in text.splitlines() if not _DRIVER.search(line)):
        out.findings.append(
            HostFinding(
                "smi-error",
                "fail",
                "nvidia-smi prints ERR! for a reading: the card stopped answering",
                "look for Xid lines in dmesg; reboot, and exchange the card if it comes back",
                "https://docs.nvidia.com/deploy/xid-errors/",
            )
        )
    if re.search(r"CUDA Version:\s*(?:ERR!|N/A)", text):
        out.findings.append(
            HostFinding(
                "driver-cuda-unknown",
                "warn",
                "nvidia-smi shows no CUDA Version: it found no libcuda (a container that was given only 'utility')",
                "start the container with NVIDIA_DRIVER_CAPABILITIES=compute,utility (or all)",
                "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html",
            )
        )
    if "No MIG devices found" in text:
        out.gpus = [replace(gpu, details={**gpu.details, "mig_instances": 0}) if gpu.mig else gpu for gpu in out.gpus]
    return out


def _begin(row: re.Match[str]) -> dict[str, object]:
    groups = row.groupdict()
    details: dict[str, object] = {}
    persist = groups.get("persist")
    if persist in ("On", "Off"):
        details["persistence"] = persist == "On"
    elif persist in ("TCC", "WDDM", "MCDM"):
        details["driver_model"] = persist
    ecc_text = groups.get("ecc")
    if ecc_text and ecc_text.isdigit():
        details["ecc_uncorrected"] = int(ecc_text)
    return {
        "name": groups["name"].strip(),
        "index": int(groups["index"]),
        "bus_id": groups.get("bus"),
        "ecc": True if ecc_text and ecc_text.isdigit() else False if ecc_text in ("Off", "N/A") else None,
        "details": details,
    }


def _continue(out: Readings, line: str) -> None:
    gpu = out.gpus[-1]
    reading = _READ_ROW.search(line)
    memory = _MEMORY.search(line)
    if memory and gpu.memory_mib is None:
        details = dict(gpu.details)
        details["memory_used_mib"] = int(memory.group(1))
        if reading:
            for key, name in (
                ("power", "power_w"),
                ("cap", "power_limit_w"),
                ("temp", "temperature_c"),
                ("util", "utilisation"),
            ):
                value = whole(reading.group(key))
                if value is not None:
                    details[name] = value
            if reading.group("perf") and reading.group("perf").startswith("P"):
                details["pstate"] = reading.group("perf")
            if reading.group("mode"):
                details["compute_mode"] = reading.group("mode").strip()
        else:
            cap = re.search(r"/\s*(\d+)W", line)
            if cap:
                details["power_limit_w"] = int(cap.group(1))
            mode = re.search(r"\b(E\. ?Process|E\. ?Thread|Prohibited|Default)\b", line)
            if mode:
                details["compute_mode"] = mode.group(1)
        out.gpus[-1] = replace(gpu, memory_mib=int(memory.group(2)), details=details)
        return
    mig = _MIG_CELL.search(line)
    if mig and gpu.memory_mib is not None and gpu.mig is None and mig.group(1) != "N/A":
        out.gpus[-1] = replace(gpu, mig=mig.group(1) == "Enabled")


def _add_mig(out: Readings, index: int, memory: int) -> None:
    for place, gpu in enumerate(out.gpus):
        if gpu.index == index:
            sizes = [*gpu.details.get("mig_memory_mib", []), memory]
            out.gpus[place] = replace(gpu, mig=True, details={**gpu.details, "mig_memory_mib": sizes})
