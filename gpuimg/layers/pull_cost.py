"""How many bytes a host must fetch for an image, given the images it already has."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from gpuimg.engine.reference import parse_reference
from gpuimg.engine.registry import Repository


@dataclass(frozen=True)
class LayerCost:
    """One layer of the image asked for; ``size`` in bytes as transferred, ``here`` when the host has it."""

    digest: str
    size: int
    title: str
    here: bool


@dataclass(frozen=True)
class PullCost:
    """``total`` and ``fetch`` in bytes, layers and configuration included."""

    reference: str
    digest: str
    total: int
    fetch: int
    layers: tuple[LayerCost, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "reference": self.reference,
            "digest": self.digest,
            "total_bytes": self.total,
            "fetch_bytes": self.fetch,
            "share_to_fetch": round(self.fetch / self.total, 4) if self.total else 0.0,
            "layers": [{"digest": c.digest, "bytes": c.size, "title": c.title, "here": c.here} for c in self.layers],
        }


def pull_cost(reference: str, have: Iterable[str] = (), *, architecture: str = "amd64") -> PullCost:
    """Read manifests only, no layer: what a pull of ``reference`` would transfer to a host that has ``have``.

    Engines fetch a layer once whatever image it came with, so layers are compared by digest.

    Raises:
        EnvironmentFault: a registry cannot be reached or has no such image.
    """
    owned: set[str] = set()
    for other in have:
        manifest = Repository.of(other).image_manifest(parse_reference(other).selector, architecture)
        owned |= {layer["digest"] for layer in manifest.document["layers"]}
    repository = Repository.of(reference)
    manifest = repository.image_manifest(parse_reference(reference).selector, architecture)
    titles = _titles(repository.config(manifest.digest))
    layers = []
    for number, layer in enumerate(manifest.document["layers"]):
        title = titles[number] if number < len(titles) else ""
        layers.append(LayerCost(layer["digest"], layer["size"], title, layer["digest"] in owned))
    config = int(manifest.document["config"]["size"])
    return PullCost(
        reference=reference,
        digest=manifest.digest,
        total=config + sum(layer.size for layer in layers),
        fetch=config + sum(layer.size for layer in layers if not layer.here),
        layers=tuple(layers),
    )


def _titles(config: dict[str, Any]) -> list[str]:
    """What made each layer, from the image's history (entries without a layer left out)."""
    return [str(h.get("created_by", "")) for h in config.get("history", []) if not h.get("empty_layer")]
