"""``gpuimg pull-cost``: bytes to fetch, before fetching."""

from __future__ import annotations

import click

from gpuimg.cli.output import json_option, out, print_json


@click.command(name="pull-cost")
@click.argument("reference", metavar="REF")
@click.option("--have", multiple=True, metavar="REF", help="An image the host already has (repeatable).")
@click.option("--arch", default="amd64", show_default=True, help="Architecture of the host, as registries name it.")
@json_option
def command(reference: str, have: tuple[str, ...], arch: str, as_json: bool) -> None:
    """How many bytes a host must fetch for REF, given the images it has. Nothing is downloaded."""
    from gpuimg.layers.pull_cost import pull_cost

    cost = pull_cost(reference, have, architecture=arch)
    if as_json:
        print_json(cost.to_json())
        return
    shared = sum(1 for layer in cost.layers if layer.here)
    out.print(f"[bold]{cost.fetch / 1e6:.0f} MB to fetch[/] of {cost.total / 1e6:.0f} MB")
    out.print(f"{shared} of {len(cost.layers)} layers are there already" if have else "nothing is assumed to be there")
    for layer in sorted(cost.layers, key=lambda c: -c.size):
        if not layer.here:
            out.print(f"  {layer.size / 1e6:8.1f} MB  {layer.title[:90]}")
