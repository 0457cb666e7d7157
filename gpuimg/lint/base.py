"""The image a file builds on or runs: facts from its reference, in the words the rules here need."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpuimg.knowledge import Knowledge
from gpuimg.knowledge.images import ImageFacts, read_image
from gpuimg.knowledge.tables import BaseTag, OsRelease


@dataclass(frozen=True)
class Base:
    """An image named in FROM or in a compose file. What is None is not known."""

    facts: ImageFacts
    row: BaseTag | None
    os: OsRelease | None

    @property
    def reference(self) -> str:
        return self.facts.reference

    @property
    def cuda_image(self) -> bool:
        """An nvidia/cuda image: no Python, no pip, nothing but CUDA and the distribution."""
        return self.facts.kind == "cuda"

    @property
    def plain(self) -> bool:
        """nvidia/cuda or a distribution's own image: python3 only when it is installed."""
        return self.cuda_image or (self.facts.kind == "distribution" and not self.facts.python_installed)

    @property
    def musl(self) -> bool:
        return self.facts.glibc == "0"

    @property
    def flavour(self) -> str | None:
        return self.facts.flavour if self.facts.flavour != "distribution" else None

    @property
    def has_nvcc(self) -> bool | None:
        """None: not known."""
        if self.facts.kind == "ngc":
            return (
                True if re.search(r"/(pytorch|tensorflow|jax|tensorrt|paddlepaddle)$", self.facts.repository) else None
            )
        if self.facts.kind == "distribution":
            return False
        if self.facts.kind == "cuda" or self.facts.repository.endswith("pytorch/pytorch"):
            return "devel" in self.flavour if self.flavour else None
        return True if "devel" in (self.facts.tag or "") else None

    @property
    def gpu(self) -> bool:
        """Made for NVIDIA cards, as far as the reference tells."""
        return self.facts.base_cuda is not None or self.facts.kind in {"cuda", "ngc"}


def base_of(kb: Knowledge, reference: str) -> Base:
    """Facts of an image. Pure: nothing is pulled."""
    facts = read_image(reference, kb)
    row = next((t for t in kb.base_tags if t.tag == facts.tag), None) if facts.kind == "cuda" else None
    return Base(facts, row, kb.os(facts.os) if facts.os else None)
