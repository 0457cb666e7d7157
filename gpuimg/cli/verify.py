"""``gpuimg verify IMAGE|--here``: run the verification suite and say what it proved."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from gpuimg.cli.output import err, json_option, out, print_json


@click.command("verify")
@click.argument("image", required=False)
@click.option("--here", is_flag=True, help="This machine or container itself, without an engine.")
@click.option(
    "--profile", default="base", show_default=True, help="smoke, base, training, inference, llm, multi-gpu, full."
)
@click.option(
    "--profile-file", type=click.Path(path_type=Path), help="Your own profile (JSON); name it with --profile."
)
@click.option("--gpus", default="auto", show_default=True, help="auto, all, none, or indices/UUIDs: 0,1.")
@click.option("--framework", help="torch, tensorflow, jax …; default: what is installed in the image.")
@click.option("--run", "run_command", metavar="CMD", help="Your own command in the image, as one more required check.")
@click.option("--only", multiple=True, metavar="CHECK", help="Only these checks (repeatable, * allowed).")
@click.option("--network", default="none", show_default=True, help="none, host, bridge.")
@click.option("--timeout", type=float, help="Seconds for the whole run.")
@click.option("--timeout-scale", type=float, default=1.0, help="Multiply every check's time limit (slow machines).")
@click.option("--policy", type=click.Path(path_type=Path), help="Policy file instead of the shipped one.")
@click.option("--python", help="With --here: the interpreter to test with.")
@click.option("--out", "folder", type=click.Path(path_type=Path), help="Folder for evidence and reports.")
@click.option("-v", "--verbose", is_flag=True, help="Every measurement.")
@json_option
def command(
    image: str | None,
    here: bool,
    profile: str,
    profile_file: Path | None,
    gpus: str,
    framework: str | None,
    run_command: str | None,
    only: tuple[str, ...],
    network: str,
    timeout: float | None,
    timeout_scale: float,
    policy: Path | None,
    python: str | None,
    folder: Path | None,
    verbose: bool,
    as_json: bool,
) -> int:
    """Run the verification suite in IMAGE (any image, also one gpuimg did not build), or --here.

    Exit codes: 0 proven, 1 something failed, 3 cannot tell (no GPU where one was asked for, no framework, no Python),
    4 no engine or no image.
    """
    from gpuimg.certify.judge import judge
    from gpuimg.certify.policy import load_policy
    from gpuimg.engine.verify import run_suite, verify_here
    from gpuimg.errors import CannotTell
    from gpuimg.report.entry import Entry, write_entry, write_text
    from gpuimg.report.terminal import render

    if here == (image is not None):
        raise click.UsageError("give an IMAGE, or --here for this machine")
    if (timeout is not None and timeout <= 0) or timeout_scale <= 0:
        raise click.UsageError("--timeout and --timeout-scale must be above 0")
    rules = load_policy(policy)
    common: dict[str, Any] = {
        "profile": profile, "profile_file": profile_file, "gpus": gpus, "framework": framework, "run": run_command,
        "only": only, "timeout": timeout, "timeout_scale": timeout_scale, "progress": show_progress,
    }  # fmt: skip
    began = time.monotonic()
    if here:
        evidence = verify_here(python=python, **common)
        if gpus not in ("auto", "none") and not evidence.environment.get("gpus"):
            raise CannotTell(f"no GPU to verify on: {evidence.environment.get('nvml_error', 'none was found')}")
    else:
        assert image is not None
        evidence = run_suite(image, network=network, **common)
    verdict = judge(evidence, rules)
    entry = Entry(image or "this machine", evidence, verdict.to_json())
    if folder is not None:
        from gpuimg.report.document import to_html, to_markdown
        from gpuimg.report.junit import to_junit

        write_entry(folder, entry)
        write_text(folder / "report.html", to_html([entry]))
        write_text(folder / "report.md", to_markdown([entry]))
        write_text(folder / "junit.xml", to_junit([entry]))
    code = exit_code(entry, partial=bool(only))
    if as_json:
        print_json({"exit": code, **entry.to_json()})
        return code
    out.print(render(entry, verbose=verbose))
    if folder is not None:
        out.print(f"evidence and reports: {folder}", style="dim")
    err.print(f"{time.monotonic() - began:.1f} s", style="dim")
    return code


def exit_code(entry: Any, *, partial: bool) -> int:
    """0 proven, 1 failed, 3 not proven. A part of a profile that passed is fine, though it certifies nothing."""
    if entry.troubles:
        return 1
    if entry.verdict.get("certified"):
        return 0
    ran = [c for c in entry.evidence.checks if c.status == "pass"]
    return 0 if partial and ran and not entry.counts["skip"] else 3


def show_progress(event: dict[str, Any]) -> None:
    """One line per step on stderr; plain enough for a CI log."""
    if event["event"] == "status":
        err.print(event["text"], style="dim", markup=False)
        return
    mark, style = {"pass": ("✓", "green"), "skip": ("–", "yellow")}.get(str(event.get("status")), ("✗", "bold red"))
    reason = event.get("reason") if event.get("status") != "pass" else None
    text = f"{mark} {event.get('id')}  {event.get('seconds', 0):.1f} s" + (f"  {reason}" if reason else "")
    err.print(text, style=style, markup=False)
