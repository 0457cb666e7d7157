"""Which wheels share a layer.

Large wheels get a layer each, so that any two images holding the same wheel share it. Small ones go into buckets
chosen by the hash of their name: a changed dependency then changes its own bucket and no other, and two images whose
buckets hold the same wheels share those too. The number of layers stays far below what engines can stack: overlayfs
takes 128 in Docker's driver, and containerd's snapshotter is bounded by the 4 KiB of mount options.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from gpuimg.layers.lockfile import LockedWheel

OWN_LAYER_BYTES = 4 << 20
"""A wheel of this size or more gets its own layer."""
MAX_OWN_LAYERS = 40
BUCKETS = 6


@dataclass(frozen=True)
class Group:
    """The wheels of one layer, in the order in which they are written."""

    wheels: tuple[LockedWheel, ...]

    @property
    def title(self) -> str:
        if len(self.wheels) == 1:
            return f"{self.wheels[0].name} {self.wheels[0].version}"
        return f"{len(self.wheels)} small wheels: " + ", ".join(wheel.name for wheel in self.wheels)

    @property
    def size(self) -> int:
        return sum(wheel.size or 0 for wheel in self.wheels)


def group_wheels(wheels: Iterable[LockedWheel]) -> tuple[Group, ...]:
    """Wheels → layers, largest first (they are rarest to change and slowest to make).

    The result depends on the set of wheels alone, not on their order.
    """
    by_size = sorted(wheels, key=lambda w: (-(w.size or 0), w.name))
    own = [w for w in by_size if (w.size or 0) >= OWN_LAYER_BYTES][:MAX_OWN_LAYERS]
    buckets: dict[int, list[LockedWheel]] = {}
    for wheel in sorted(set(by_size) - set(own), key=lambda w: w.name):
        buckets.setdefault(_bucket(wheel.name), []).append(wheel)
    groups = [Group((wheel,)) for wheel in own]
    groups += [Group(tuple(buckets[number])) for number in sorted(buckets)]
    return tuple(groups)


def _bucket(name: str) -> int:
    return hashlib.sha256(name.encode()).digest()[0] % BUCKETS
