"""``gpuimg check IMAGE``: does its certificate hold, and does it cover this host? Nothing is pulled."""

from __future__ import annotations

import os
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuimg.cli.output import json_option, out, print_json

if TYPE_CHECKING:
    from gpuimg.certify.check import CheckAnswer
    from gpuimg.certify.signing import PublicKey
    from gpuimg.nouns import Host

_RANK = {"yes": 0, "unknown": 1, "no": 2}
_EXIT = {"yes": 0, "no": 1, "unknown": 3}


@click.command("check")
@click.argument("image")
@click.option(
    "--certificate", "file", type=click.Path(path_type=Path), help="This certificate instead of those attached."
)
@click.option(
    "--key", "keys", multiple=True, type=click.Path(path_type=Path), help="Trusted public key, PEM (repeatable)."
)
@click.option("--host", "host_file", help="Facts of the host: anything `gpuimg host` reads, or - for stdin.")
@click.option("--gpu", "gpus", multiple=True, metavar="NAME[:COUNT]", help="Instead of --host: the card (repeatable).")
@click.option("--driver", help="Instead of --host: the driver version.")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), help="How it will be used; default: by the host.")
@click.option("--policy", type=click.Path(path_type=Path), help="Demand that exactly this policy was applied.")
@click.option("--no-host", is_flag=True, help="Check the certificate only.")
@json_option
def command(
    image: str,
    file: Path | None,
    keys: tuple[Path, ...],
    host_file: str | None,
    gpus: tuple[str, ...],
    driver: str | None,
    device: str | None,
    policy: Path | None,
    no_host: bool,
    as_json: bool,
) -> int:
    """Check IMAGE's certificate (signature, digest, expiry, policy) and whether its scope covers the host.

    Trusted keys: --key, else GPUIMG_TRUSTED_KEYS (files separated by ':'), else the key this user signs with.
    Exit codes: 0 certified for this host, 1 not (broken, expired, of another image), 3 cannot tell, 4 registry.
    """
    from gpuimg.certify.check import check_certificate
    from gpuimg.certify.policy import load_policy
    from gpuimg.certify.signing import BUNDLE_TYPE, read_certificate
    from gpuimg.engine.reference import parse_reference
    from gpuimg.engine.registry import Repository
    from gpuimg.errors import BadInput

    trusted = trusted_keys(keys)
    host = None if no_host else find_host(host_file, gpus, driver)
    wanted = load_policy(policy).digest if policy is not None else None
    reference = parse_reference(image)
    found: list[tuple[str, bytes]] = []
    if file is not None:
        try:
            found.append((str(file), file.read_bytes()))
        except OSError as error:
            raise BadInput(f"{file}: cannot be read: {error.strerror}") from error
    if file is not None and reference.digest is not None:
        digest = reference.digest
    else:
        repository = Repository.of(reference)
        digest = repository.resolve(reference.selector)
        if file is None:
            for descriptor, content in repository.attachments(digest, BUNDLE_TYPE):
                found.append((str(descriptor["digest"]), content))
    answers: list[tuple[str, CheckAnswer]] = []
    foreign = 0
    for name, content in found:
        certificate = read_certificate(content, name)
        if file is None and not is_ours(certificate.statement):
            foreign += 1  # a signature or provenance made by other tools: not our business
            continue
        answer = check_certificate(
            certificate, digest=digest, keys=trusted, now=datetime.now(timezone.utc), host=host, device=device,
            policy_digest=wanted,
        )  # fmt: skip
        answers.append((name, answer))
    # The newest comes last; of equal answers it is the one to show.
    best = min(reversed(answers), key=lambda a: _RANK[a[1].verdict], default=None)
    verdict = best[1].verdict if best is not None else "unknown"
    code = _EXIT[verdict]
    if as_json:
        document: dict[str, Any] = {
            "verdict": verdict,
            "image": image,
            "digest": digest,
            "certificates": [{"certificate": n, **a.to_json()} for n, a in answers],
            "other_attestations": foreign,
        }
        print_json(document)
        return code
    if best is None:
        out.print(f"CANNOT TELL  {image} carries no certificate ({digest})", style="bold yellow")
        out.print(f"  → gpuimg certify --image {image}", style="cyan")
        return code
    show(image, *best)
    if len(answers) > 1:
        out.print(f"  {len(answers)} certificates; the best is shown, --json shows all", style="dim")
    return code


def show(image: str, name: str, answer: CheckAnswer) -> None:
    """The verdict, then each reason, then what to do."""
    words = {
        "yes": ("CERTIFIED", "bold green"),
        "no": ("NOT CERTIFIED", "bold red"),
        "unknown": ("CANNOT TELL", "bold yellow"),
    }
    word, style = words[answer.verdict]
    scope = answer.scope
    what = ", ".join(scope.get("gpus") or []) if scope.get("device") == "cuda" else scope.get("device")
    out.print(f"[{style}]{word}[/]  {image}  certified for: {scope.get('profile')} · {what} · until {answer.expires}")
    marks = {"yes": ("✓", "green"), "warn": ("!", "yellow"), "unknown": ("?", "yellow"), "no": ("✗", "bold red")}
    for finding in answer.findings:
        mark, colour = marks[finding.verdict]
        out.print(f"  {mark} {finding.rule}: {finding.evidence}", style=colour, markup=False)
        if finding.fix:
            out.print(f"    → {finding.fix}", style="cyan", markup=False)
    out.print(f"  certificate {name}", style="dim", markup=False)


def is_ours(statement: dict[str, Any]) -> bool:
    from gpuimg.certify.certificate import PREDICATE_TYPE

    return statement.get("predicateType") == PREDICATE_TYPE


def trusted_keys(given: tuple[Path, ...]) -> list[PublicKey]:
    """Keys that count as trusted; empty when there is none at all."""
    from gpuimg.certify.signing import default_key_path, load_public

    named = list(given) or [Path(p) for p in os.environ.get("GPUIMG_TRUSTED_KEYS", "").split(":") if p]
    if not named:
        own = [Path(os.environ["GPUIMG_KEY"])] if os.environ.get("GPUIMG_KEY") else [default_key_path()]
        named = [path for path in own if path.exists()]
    return [load_public(path) for path in named]


def find_host(file: str | None, gpus: tuple[str, ...], driver: str | None) -> Host:
    """The host that is meant: from options, from a description, else this machine.

    Raises:
        BadInput: --host together with --gpu or --driver, or nothing readable there.
    """
    from gpuimg.errors import BadInput
    from gpuimg.nouns import Gpu, Host

    if file is not None and (gpus or driver):
        raise BadInput("--host and --gpu/--driver exclude each other")
    if file is not None:
        from gpuimg.cli.question import read_host

        return read_host(file)
    if gpus or driver:
        from gpuimg.knowledge import load
        from gpuimg.knowledge.gpunames import identify

        cards: list[Gpu] = []
        for text in gpus:
            card = identify(text, load())
            cards += [Gpu(name=card.name, compute_capability=card.compute_capability)] * card.count
        return Host(gpus=tuple(cards), driver=driver)
    from gpuimg.host.local import read_here

    return read_here()
