"""Plan + locked wheels → image digest in a registry, by either of two producers that give the same files.

``stream``: BuildKit builds the small foundation from the rendered Dockerfile, wheels become layers directly.
``buildkit``: BuildKit builds the whole Dockerfile, as anyone can without gpuimg.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gpuimg.dockerfile.render import PREFIX, Layer, Rendered, image_tag, labels
from gpuimg.engine.build import build_target
from gpuimg.engine.registry import Manifest, NotThere, Repository
from gpuimg.layers.assembly import Assembler, Work
from gpuimg.layers.grouping import group_wheels
from gpuimg.layers.lockfile import LockedWheel
from gpuimg.layers.wheel_tar import Environment
from gpuimg.nouns import BaseImage, Plan

Producer = Literal["stream", "buildkit"]
Say = Callable[[str], object]
_ONE_FOUNDATION = threading.Lock()


@dataclass(frozen=True)
class Produced:
    """An image that is in the registry under ``digest``; ``work`` says what making it took (stream only)."""

    repository: Repository
    digest: str
    producer: Producer
    work: Work | None


def layers_of(wheels: Sequence[LockedWheel]) -> list[Layer]:
    """The same grouping for both producers."""
    return [
        Layer(group.title, tuple((w.name, w.version, w.sha256) for w in group.wheels)) for group in group_wheels(wheels)
    ]


def produce(
    plan: Plan,
    rendered: Rendered,
    wheels: Sequence[LockedWheel],
    base: BaseImage,
    *,
    context: Path,
    target: Repository,
    foundations: Repository,
    assembler: Assembler,
    producer: Producer = "stream",
    log: Path,
    builder: str | None = None,
    pypi: str | None = None,
    say: Say = lambda _: None,
) -> Produced:
    """Make the image of a plan under ``<target>:staging-<tag>``; nothing is rebuilt that the registry already has.

    Raises:
        BuildFailed, EnvironmentFault, BadInput: as the parts do.
    """
    tag = f"staging-{image_tag(plan.cell)}"
    arguments = {"BASE": base.reference, "BASE_DIGEST": base.digest or ""}
    if pypi:
        arguments["PYPI"] = pypi
    if producer == "buildkit":
        digest = build_target(
            context, target=None, reference=f"{target}:{tag}", arguments=arguments, log=log, builder=builder, say=say
        )
        return Produced(target, target.image_manifest(digest).digest, "buildkit", None)
    with _ONE_FOUNDATION:  # cells that share one must not build it at the same time: the engine refuses the second name
        foundation = _foundation(rendered, base, context, foundations, arguments, log, builder, say)
    found = labels(plan) | {
        "org.opencontainers.image.base.digest": base.digest or "",
        "io.gpuimg.base.origin": base.origin,
    }
    made = assembler.assemble(
        wheels, Environment(PREFIX, plan.python), foundation, foundations, target, tag=tag, labels=found
    )
    return Produced(target, made.digest, "stream", made.work)


def _foundation(
    rendered: Rendered,
    base: BaseImage,
    context: Path,
    foundations: Repository,
    arguments: dict[str, str],
    log: Path,
    builder: str | None,
    say: Say,
) -> Manifest:
    """The foundation stage's image; its tag is the hash of what it is made of, so it is built once."""
    stage = rendered.dockerfile.split("\nFROM foundation", 1)[0]
    instructions = "\n".join(line for line in stage.splitlines() if not line.startswith("#"))
    key = hashlib.sha256(f"{instructions}\n{base.reference}".encode()).hexdigest()[:40]
    try:
        return foundations.image_manifest(key)
    except NotThere:
        say("foundation: base, Python, user")
    digest = build_target(
        context, target="foundation", reference=f"{foundations}:{key}",
        arguments={"BASE": arguments["BASE"]}, log=log, builder=builder, say=say,
    )  # fmt: skip
    return foundations.image_manifest(digest)
