"""``gpuimg doctor``: what is wrong with this machine's engine, toolkit and CDI, and the command that mends it."""

from __future__ import annotations

import click

from gpuimg.cli.output import json_option, out, print_json

_MARK = {"ok": "[green]✓[/]", "warn": "[yellow]![/]", "fail": "[bold red]✗[/]", "ask": "[cyan]?[/]"}


@click.command("doctor")
@click.option(
    "--registry", "registries", multiple=True, metavar="HOST[:PORT]", help="Also ask this registry (repeatable)."
)
@json_option
def command(registries: tuple[str, ...], as_json: bool) -> int:
    """What is wrong with this machine's Docker engine, NVIDIA toolkit, CDI specs, driver and disk.

    Looks only; each finding names the command that mends it.

    Exit codes: 0 nothing that stands in the way, 1 something does.
    """
    from dataclasses import replace

    from gpuimg.host.setup import judge_setup, read_setup

    setup = replace(read_setup(), registries=tuple((name, _problem(name)) for name in registries))
    findings = judge_setup(setup)
    broken = any(f.severity == "fail" for f in findings)
    if as_json:
        facts = {
            "engine": (setup.engine or {}).get("ServerVersion"),
            "buildx": setup.buildx,
            "toolkit": setup.toolkit,
            "driver": setup.driver,
            "gpus": setup.cards,
            "cdi_specs": [spec.path for spec in setup.specs],
            "free_gib": None if setup.free_gib is None else round(setup.free_gib, 1),
        }
        print_json(
            {
                "verdict": "problems" if broken else "ok",
                "findings": [f.to_json() for f in findings],
                "facts": facts,
            }
        )
        return int(broken)
    counts = sum(f.severity == "fail" for f in findings), sum(f.severity == "warn" for f in findings)
    out.print(
        f"[bold red]{counts[0]} in the way[/], {counts[1]} to improve"
        if broken
        else f"[bold green]ready[/]{f', {counts[1]} to improve' if counts[1] else ''}"
    )
    for finding in findings:
        out.print(f"  {_MARK[finding.severity]} ", end="")
        out.print(f"{finding.rule}: {finding.evidence}", markup=False)
        if finding.fix:
            out.print(f"      {finding.fix}", markup=False, style="bold" if finding.severity == "fail" else "dim")
    return int(broken)


def _problem(registry: str) -> str | None:
    """None when the registry answers."""
    from gpuimg.engine.registry import Registry
    from gpuimg.errors import GpuimgError

    try:
        Registry(registry.split("/")[0]).ping()
    except GpuimgError as error:
        return error.message
    return None
