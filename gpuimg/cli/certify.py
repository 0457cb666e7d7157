"""``gpuimg certify``: the main job."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuimg.cli.matrix_options import build_options, only_option, out_option, say
from gpuimg.cli.output import json_option, out, print_json

if TYPE_CHECKING:
    from gpuimg.pipeline import Outcome

_MARKS = {"certified": "[bold green]✓[/]", "unchanged": "[green]=[/]"}
_EXIT = {"certified": 0, "unchanged": 0, "cannot-tell": 3, "error": 4, "failed": 1, "refused": 1}


@click.command("certify")
@click.argument("matrix", type=click.Path(path_type=Path), required=False)
@click.option("--image", metavar="REF", help="An image gpuimg did not build, instead of MATRIX.")
@only_option
@out_option
@build_options
@click.option("--profile", help="Suite profile instead of the matrix file's.")
@click.option("--gpus", default="auto", show_default=True, help="auto, all, none, or indices/UUIDs.")
@click.option("--framework", help="With --image: the framework to test, when it holds several.")
@click.option("--network", default="none", show_default=True, help="With --image: none, host, bridge.")
@click.option("--key", type=click.Path(path_type=Path), help="Private key to sign with; made on first use by default.")
@click.option("--again", "reverify", is_flag=True, help="Verify again what was already certified.")
@json_option
def command(
    matrix: Path | None, image: str | None, only: tuple[str, ...], folder: Path, framework: str | None, network: str,
    as_json: bool, **options: Any,
) -> int:  # fmt: skip
    """Plan, build, push to staging, verify in the container, certify, tag: every cell of MATRIX, or one --image.

    Only what passed is tagged; the certificate is signed and bound to the image's digest.

    Exit codes: 0 all certified, 1 something failed or was refused, 2 bad input, 3 not proven, 4 no engine or registry.
    """
    if (matrix is None) == (image is None):
        raise click.UsageError("give a MATRIX file, or --image REF")
    from gpuimg.engine.build import require_buildx
    from gpuimg.pipeline import Job, Settings, certify_all, certify_reference

    job: Job | None = None
    outcomes: tuple[Outcome, ...]
    if image is not None:
        settings = Settings(Path(image), **options)
        outcomes = (certify_reference(image, settings, say, framework=framework, network=network),)
    else:
        assert matrix is not None
        require_buildx()
        job, outcomes = certify_all(Settings(matrix, only=only, out=folder, **options), say)
    code = _code(outcomes)
    if as_json:
        left_out = [] if job is None else [c.id for c in job.with_gpu]
        print_json(
            {
                "verdict": "certified" if code == 0 else "not-certified",
                "outcomes": [o.to_json() for o in outcomes],
                "with_gpu": left_out,
                "notes": [] if job is None else list(job.notes),
            }
        )
        return code
    good = [o for o in outcomes if o.state in _MARKS]
    unchanged = sum(1 for o in good if o.state == "unchanged")
    first = f"[bold]{len(good)} of {len(outcomes)} certified[/]"
    if unchanged:
        same = "all" if unchanged == len(outcomes) else str(unchanged)
        first += f" ({same} unchanged since they were: nothing was done again)"
    out.print(first)
    for o in outcomes:
        out.print(f"  {_MARKS.get(o.state, '[bold red]✗[/]')} {o.cell}  {o.state}: ", end="", markup=True)
        out.print(o.text, markup=False)
        if o.tag:
            out.print(f"      {o.tag}\n      {o.reference}", markup=False)
        if o.hint:
            out.print(f"      {o.hint}", markup=False)
        if o.seconds:
            out.print("      " + ", ".join(f"{k} {v} s" for k, v in o.seconds.items()), style="dim")
    out.print(_closing(outcomes), markup=False, style="bold")
    if job is not None and job.with_gpu:
        names = ", ".join(c.framework for c in job.with_gpu)
        out.print(
            f"On a GPU host the same command also builds {names} for its card and driver and certifies it for them:\n"
            f"  make certify MATRIX={matrix}        (or: gpuimg certify {matrix})",
            markup=False,
        )
    return code


def _code(outcomes: Sequence[Outcome]) -> int:
    if any(o.state in ("failed", "refused") for o in outcomes):
        return 1
    return max((o.exit_code if o.exit_code is not None else _EXIT[o.state] for o in outcomes), default=0)


def _closing(outcomes: Sequence[Outcome]) -> str:
    """One line: what is certified, for what, and where it lies."""
    scopes: dict[str, list[str]] = {}
    for o in outcomes:
        if o.tag and o.state in _MARKS:
            where = "cpu"
            if o.scope.get("device") != "cpu":
                where = f"{' + '.join(o.scope.get('gpus', []))} (driver branch {o.scope.get('driver_branch')})"
            scopes.setdefault(where, []).append(o.tag)
    if not scopes:
        return "Nothing is certified."
    return "; ".join(f"Certified for {where}: {', '.join(tags)}" for where, tags in scopes.items())
