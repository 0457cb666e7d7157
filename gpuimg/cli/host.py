"""``gpuimg host``: facts and health of a server."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from gpuimg.cli.output import json_option, out, print_json
from gpuimg.errors import BadInput

_EXIT = {"ok": 0, "warn": 0, "fail": 1, "unknown": 3}
_MARK = {"ok": "[green]✓[/]", "warn": "[yellow]![/]", "fail": "[bold red]✗[/]", "ask": "[cyan]?[/]"}


@click.command("host")
@click.argument("source", required=False, metavar="[FILE|-]")
@json_option
def command(source: str | None, as_json: bool) -> int:
    """Facts and health of a GPU server: of this machine, or from FILE (- is standard input).

    FILE may hold what nvidia-smi prints (table, -q, -x, -L, --query-gpu CSV, topo -m), kernel log lines, torch's
    collect_env, or a provider's description page (English or Chinese).

    Exit codes: 0 usable, 1 something is broken, 3 nothing usable in it.
    """
    from gpuimg.host import parse_host
    from gpuimg.host.detect import verdict_of

    if source is None:
        from gpuimg.host.local import read_here

        host = read_here()
    else:
        host = parse_host(read_text(source))
    verdict = verdict_of(host.findings, host)
    if as_json:
        print_json(document(host, verdict))
        return _EXIT[verdict]
    names = ", ".join(sorted({g.name for g in host.gpus}))
    head = {
        "ok": "[bold green]healthy[/]",
        "warn": "[bold yellow]usable, with remarks[/]",
        "fail": "[bold red]broken[/]",
        "unknown": _unknown(source, bool(host.gpus)),
    }[verdict]
    count = f"{len(host.gpus)} × " if host.gpus else ""
    out.print(head + (f"  {count}{names}" if names else ""))
    for label, value in (
        ("driver", host.driver),
        ("driver_cuda", host.driver_cuda),
        ("toolkit", host.toolkit),
        ("frameworks", ", ".join(r.raw for r in host.frameworks)),
    ):
        if value:
            out.print(f"  {label}: {value}")
    for gpu in host.gpus:
        memory = f", {gpu.memory_mib} MiB" if gpu.memory_mib else ""
        out.print(f"  GPU {gpu.index}: {gpu.name}, compute capability {gpu.compute_capability or 'unknown'}{memory}")
    for finding in host.findings:
        out.print(f"  {_MARK[finding.severity]} ", end="", markup=True)
        out.print(f"{finding.rule}: {finding.evidence}", markup=False)
        if finding.fix:
            out.print(f"      {finding.fix}", markup=False, style="dim")
    if host.missing:
        out.print(f"  not said: {', '.join(host.missing)}")
    return _EXIT[verdict]


def _unknown(source: str | None, has_cards: bool) -> str:
    if has_cards:
        return "[bold]cannot tell[/]: the card is not known"
    if source is None:
        return "[bold]no NVIDIA GPU on this machine[/]"
    return (
        "[bold]cannot tell[/]: no GPU in it; looked for what nvidia-smi prints (table, -q, -q -x, -L, CSV, topo -m), "
        "kernel log lines, torch's collect_env, a provider's page"
    )


def read_text(source: str) -> str:
    """The text of FILE or standard input, whatever its encoding.

    Raises:
        BadInput: no such file, or it cannot be read.
    """
    if source == "-":
        data = sys.stdin.buffer.read()
    else:
        try:
            data = Path(source).read_bytes()
        except OSError as error:
            raise BadInput(f"{source}: {error.strerror or error}") from None
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16", "replace")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("gb18030", "replace")


def document(host: Any, verdict: str) -> dict[str, Any]:
    """The JSON form."""
    facts = {
        name: getattr(host, name)
        for name in ("driver", "driver_cuda", "toolkit", "cudnn", "python", "os", "glibc", "runtime")
    }
    return {
        "verdict": verdict,
        "gpus": [gpu.to_json() for gpu in host.gpus],
        **facts,
        "frameworks": [f"{r.name}{r.specifier}" + (f"+{r.local}" if r.local else "") for r in host.frameworks],
        "findings": [finding.to_json() for finding in host.findings],
        "missing": list(host.missing),
        "details": host.details,
    }
