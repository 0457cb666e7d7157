"""``gpuimg push SOURCE TARGET``: promote an image to another repository or registry by digest."""

from __future__ import annotations

import click

from gpuimg.cli.output import err, json_option, out, print_json


@click.command("push")
@click.argument("source")
@click.argument("target")
@click.option("--tag", "tags", multiple=True, help="Further tags there (repeatable).")
@click.option("--no-referrers", is_flag=True, help="Leave certificates and other attached documents behind.")
@click.option("--allow-uncertified", is_flag=True, help="Promote an image that carries no certificate.")
@json_option
def command(
    source: str, target: str, tags: tuple[str, ...], no_referrers: bool, allow_uncertified: bool, as_json: bool
) -> int:
    """Promote SOURCE (name, tag or digest in a registry) to TARGET: same bytes, same digest, certificates along.

    Nothing is rebuilt or re-compressed. Exit codes: 0 done, 1 not certified, 4 a registry refused.
    """
    from gpuimg.certify.signing import BUNDLE_TYPE
    from gpuimg.engine.reference import parse_reference
    from gpuimg.engine.registry import Repository
    from gpuimg.errors import BadInput, GpuimgError

    origin, goal = parse_reference(source), parse_reference(target)
    repository, there = Repository.of(origin), Repository.of(goal)
    digest = repository.resolve(origin.selector)
    if goal.digest is not None and goal.digest != digest:
        raise BadInput(f"{target}: {source} has digest {digest}; a target by digest must be the same")
    certificates = repository.referrers(digest, BUNDLE_TYPE)
    if not certificates and not allow_uncertified:
        raise GpuimgError(
            f"{source} ({digest}) carries no certificate",
            hint=f"gpuimg certify --image {source}, or --allow-uncertified",
        )
    wanted = list(dict.fromkeys([*([goal.tag] if goal.tag else []), *tags]))
    copied = repository.copy_to(
        there, digest, tags=wanted, with_referrers=not no_referrers, progress=lambda t: err.print(t, style="dim")
    )
    document = {
        "digest": digest,
        "target": str(goal.with_digest(digest)),
        "tags": wanted,
        "referrers": list(copied.referrers),
        "blobs": {"mounted": copied.blobs_mounted, "present": copied.blobs_present, "sent": copied.blobs_sent},
        "bytes_sent": copied.bytes_sent,
    }
    if as_json:
        print_json(document)
        return 0
    names = ", ".join(f"{goal.name}:{t}" for t in wanted) or "no tag"
    out.print(f"PROMOTED  {goal.with_digest(digest)}  ({names})")
    out.print(
        f"  {len(copied.referrers)} attached documents along; blobs: {copied.blobs_sent} sent "
        f"({copied.bytes_sent / 1e6:.1f} MB), {copied.blobs_mounted} mounted, {copied.blobs_present} already there"
    )
    return 0
