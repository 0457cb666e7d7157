"""One text, whatever form it has (or several forms pasted together) → :class:`~gpuimg.nouns.Host`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, cast

from gpuimg.host.collect_env import read_collect_env
from gpuimg.host.failures import read_failures
from gpuimg.host.health import judge
from gpuimg.host.kernel_log import read_kernel_log
from gpuimg.host.provider_page import read_provider_page
from gpuimg.host.readings import Readings
from gpuimg.host.smi_csv import read_csv, read_list
from gpuimg.host.smi_report import read_report, read_xml
from gpuimg.host.smi_table import read_table
from gpuimg.host.topology import read_topology
from gpuimg.knowledge import load
from gpuimg.knowledge.gpunames import card_of
from gpuimg.nouns import Gpu, Host, HostFinding, Runtime

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_FORMS: dict[str, Callable[[str], Readings | None]] = {
    "xml": read_xml,
    "report": read_report,
    "table": read_table,
    "csv": read_csv,
    "list": read_list,
    "collect-env": read_collect_env,
    "topology": read_topology,
    "failure": read_failures,
    "kernel-log": read_kernel_log,
}


def parse_host(text: str, *, hint: str | None = None) -> Host:
    """Facts of a server from pasted text; unknown stays unknown, and an unreadable text gives an empty host.

    ``hint`` names a form ('xml', 'report', 'table', 'csv', 'list', 'collect-env', 'topology', 'kernel-log', 'page') to
    read it as; by default every form that fits is read and what they say is joined.
    """
    plain = _ESCAPES.sub("", text.replace("\r\n", "\n").replace("\r", "\n").replace("\ufeff", "").replace("\xa0", " "))
    readings = [found for found in _read(plain, hint) if found is not None]
    return host_of(readings, wsl=re.search(r"microsoft-standard-WSL|WSL2|/usr/lib/wsl", plain, re.I) is not None)


def host_of(readings: list[Readings], *, wsl: bool = False) -> Host:
    """What several readings of one server say together, completed from the knowledge base and judged."""
    joined = _join(readings)
    if wsl:
        joined.runtime = joined.runtime or "wsl2"
    gpus = tuple(_completed(gpu) for gpu in joined.gpus)
    host = Host(
        gpus=gpus,
        driver=joined.driver,
        driver_cuda=joined.driver_cuda or _driver_cuda(joined),
        toolkit=joined.toolkit,
        cudnn=joined.cudnn,
        python=joined.python,
        os=joined.os,
        glibc=joined.glibc,
        machine=joined.machine or "x86_64",
        runtime=cast("Runtime | None", joined.runtime),
        frameworks=tuple(dict.fromkeys(joined.frameworks)),
        findings=tuple(joined.findings),
        missing=tuple(_missing(joined, gpus)),
        details=joined.details,
    )
    return replace(host, findings=(*host.findings, *judge(host)))


def _read(text: str, hint: str | None) -> Iterable[Readings | None]:
    if hint == "page":
        yield read_provider_page(text)
        return
    if hint in _FORMS:
        yield _FORMS[hint](text)
        return
    yield _from_json(text)
    found = False
    for name, read in _FORMS.items():
        reading = read(text)
        if reading is not None:
            found = found or name not in ("kernel-log", "topology")
            yield reading
    if not found:
        yield read_provider_page(text)


def _from_json(text: str) -> Readings | None:
    """Our own ``host --json``, and wrappers that print a list of cards."""
    start = text.lstrip()[:1]
    if start not in ("{", "["):
        return None
    try:
        document: Any = json.loads(text)
    except ValueError:
        return None
    rows = document if isinstance(document, list) else document.get("gpus") if isinstance(document, dict) else None
    if not isinstance(rows, list):
        return None
    out = Readings()
    known: dict[str, type] = {
        "name": str,
        "index": int,
        "compute_capability": str,
        "memory_mib": int,
        "pci_id": str,
        "bus_id": str,
        "uuid": str,
        "mig": bool,
        "ecc": bool,
    }
    for row in rows:
        if isinstance(row, dict) and isinstance(row.get("name"), str):
            details = {k: v for k, v in row.items() if k not in known and k != "mig_profiles"}
            facts: dict[str, Any] = {k: v for k, v in row.items() if k in known and type(v) is known[k]}
            out.gpus.append(Gpu(**facts, details=_numbers(details)))
    if isinstance(document, dict):
        for name in ("driver", "driver_cuda", "toolkit", "cudnn", "python", "os", "glibc", "machine", "runtime"):
            if isinstance(document.get(name), str):
                setattr(out, name, document[name])
    return None if out.empty() else out


def _numbers(details: dict[str, Any]) -> dict[str, Any]:
    """Readings whose type is not what rules compute with are left out."""
    numeric = re.compile(r"_(?:w|mib|c|us|gen|width|max|replays|sbe|dbe|uncorrectable|correctable|volatile|aggregate)$")
    out = {}
    for name, value in details.items():
        counted = numeric.search(name) or name in ("utilisation", "ecc_uncorrected", "mig_instances")
        if counted and (isinstance(value, bool) or not isinstance(value, (int, float, dict))):
            continue
        if name == "throttle" and not isinstance(value, list):
            continue
        if name == "throttle_us" and not (
            isinstance(value, dict) and all(isinstance(v, (int, float)) for v in value.values())
        ):
            continue
        if counted and name != "throttle_us" and isinstance(value, dict):
            continue
        out[name] = value
    return out


def _join(readings: list[Readings]) -> Readings:
    """The first form that knows a fact wins; cards are those of the form that knows most of them."""
    out = Readings()
    for reading in readings:
        for name in ("driver", "driver_cuda", "toolkit", "cudnn", "python", "os", "glibc", "machine", "runtime"):
            if getattr(out, name) is None:
                setattr(out, name, getattr(reading, name))
        out.frameworks += reading.frameworks
        out.findings += [
            f for f in reading.findings if (f.rule, f.evidence) not in {(g.rule, g.evidence) for g in out.findings}
        ]
        out.details = {**{k: v for k, v in reading.details.items() if v is not None}, **out.details}
        out.asked += reading.asked
        if len(reading.gpus) > len(out.gpus) or (
            len(reading.gpus) == len(out.gpus) and _richness(reading.gpus) > _richness(out.gpus)
        ):
            out.gpus = _merged(reading.gpus, out.gpus)
        elif len(reading.gpus) == len(out.gpus):
            out.gpus = _merged(out.gpus, reading.gpus)
    return out


def _richness(gpus: list[Gpu]) -> int:
    return sum(
        len(g.details) + sum(v is not None for v in (g.compute_capability, g.memory_mib, g.bus_id)) for g in gpus
    )


def _merged(first: list[Gpu], second: list[Gpu]) -> list[Gpu]:
    if len(first) != len(second):
        return list(first)
    out = []
    for a, b in zip(first, second, strict=True):
        fill = {
            name: getattr(b, name)
            for name in ("index", "compute_capability", "memory_mib", "pci_id", "bus_id", "uuid", "mig", "ecc")
            if getattr(a, name) is None
        }
        name = b.name if a.name.endswith("...") and not b.name.endswith("...") else a.name
        out.append(
            replace(
                a, name=name, mig_profiles=a.mig_profiles or b.mig_profiles, details={**b.details, **a.details}, **fill
            )
        )
    return out


def _completed(gpu: Gpu) -> Gpu:
    """The compute capability from the knowledge base, where the name is known and the text did not say it."""
    if gpu.compute_capability is not None:
        return gpu
    card = card_of(gpu, load())
    if card.compute_capability is None and card.foreign is None:
        # pages write the form factor loosely ('H100 SXM'): the chip is what decides
        shorter = re.sub(r"\s*[-/ ]\s*(?:SXM\d?|HGX|PCI-?E|OAM|NVLink)\b", "", gpu.name, flags=re.I).strip()
        if shorter and shorter != gpu.name:
            plain = card_of(replace(gpu, name=shorter), load())
            if plain.compute_capability is not None:
                gpu, card = replace(gpu, name=shorter, details={**gpu.details, "written": gpu.name}), plain
    details = {**gpu.details, "model": card.model.name} if card.model and card.model.name != gpu.name else gpu.details
    return replace(gpu, compute_capability=card.compute_capability, details=details)


def _driver_cuda(joined: Readings) -> str | None:
    """What a driver of this version supports, when the text does not say (old banners, -L, CSV)."""
    if not joined.driver or "." not in joined.driver or joined.details.get("windows"):
        return None
    return load().driver_cuda(joined.driver)


def _missing(joined: Readings, gpus: tuple[Gpu, ...]) -> list[str]:
    asked = list(joined.asked)
    if not joined.gpus and "gpu" not in asked and "topology" not in joined.details:
        asked.append("gpu")
    if joined.driver is None and "driver" not in asked:
        asked.append("driver")
    if any(gpu.compute_capability is None for gpu in gpus):
        asked.append("compute_capability")
    return list(dict.fromkeys(asked))


def verdict_of(findings: Iterable[HostFinding], host: Host) -> str:
    """'fail', 'warn', 'ok', or 'unknown' when nothing usable was found."""
    severities = {f.severity for f in findings}
    if "fail" in severities:
        return "fail"
    if not host.gpus and "topology" not in host.details and "kernel_log" not in host.details:
        return "unknown"
    if host.gpus and all(gpu.compute_capability is None for gpu in host.gpus):
        return "unknown"
    return "warn" if severities & {"warn", "ask"} else "ok"
