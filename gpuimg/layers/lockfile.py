"""The wheels an image is made of, pinned by hash: reading and writing PEP 751 lock files (``pylock.toml``).

uv writes them; nothing here resolves. A wheel is known by its hash, so a lock made through one mirror is good for
every other.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from gpuimg.errors import BadInput

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@dataclass(frozen=True)
class LockedWheel:
    """One wheel of a lock. ``sha256`` is 64 hex digits, ``size`` is in bytes (None where the index gave none)."""

    name: str
    version: str
    filename: str
    url: str
    sha256: str
    size: int | None = None


@dataclass(frozen=True)
class Platform:
    """What wheels must run on: Python 'major.minor', the image's glibc 'major.minor', machine as ``uname -m`` says."""

    python: str
    glibc: str
    machine: str = "x86_64"

    def tags(self) -> dict[Tag, int]:
        """Wheel tags that run there → rank, best first (PEP 425, PEP 600, as pip orders them)."""
        version = tuple(int(part) for part in self.python.split("."))
        major, minor = (int(part) for part in self.glibc.split(".")[:2])
        legacy = {(2, 17): "manylinux2014", (2, 12): "manylinux2010", (2, 5): "manylinux1"}
        platforms = []
        for step in range(minor, 4, -1):
            platforms.append(f"manylinux_{major}_{step}_{self.machine}")
            if (major, step) in legacy:
                platforms.append(f"{legacy[major, step]}_{self.machine}")
        platforms.append(f"linux_{self.machine}")
        interpreter = f"cp{version[0]}{version[1]}"
        ordered = [
            *cpython_tags(version, platforms=platforms),
            *compatible_tags(version, interpreter=interpreter, platforms=platforms),
        ]
        return {tag: rank for rank, tag in reversed(list(enumerate(ordered)))}


def read_lock(text: str, platform: Platform, *, file: str = "pylock.toml") -> tuple[LockedWheel, ...]:
    """The wheels of a lock for one platform, the best of each package, sorted by name.

    Raises:
        BadInput: not a lock, a package without a wheel for ``platform``, or a wheel without a sha256.
    """
    try:
        document: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{file}: not TOML: {error}") from None
    if str(document.get("lock-version", "")).split(".")[0] != "1" or "packages" not in document:
        raise BadInput(f"{file}: not a pylock.toml of version 1 (PEP 751)")
    ranks = platform.tags()
    wheels = []
    for package in document["packages"]:
        label = f"{package.get('name')} {package.get('version', '')}".strip()
        fitting = [(rank, wheel) for wheel in package.get("wheels") or [] if (rank := _rank(wheel, ranks)) is not None]
        if not fitting:
            what = "only source, no wheel" if not package.get("wheels") else f"no wheel for {platform}"
            raise BadInput(f"{file}: {label}: {what}")
        wheel = min(fitting, key=lambda pair: pair[0])[1]
        sha256 = wheel.get("hashes", {}).get("sha256")
        if not sha256:
            raise BadInput(f"{file}: {label}: no sha256; a wheel that cannot be verified is not installed")
        wheels.append(
            LockedWheel(
                name=canonicalize_name(package["name"]),
                version=str(package.get("version", "")),
                filename=_filename(wheel),
                url=wheel.get("url") or wheel.get("path") or "",
                sha256=sha256,
                size=wheel.get("size"),
            )
        )
    return tuple(sorted(wheels, key=lambda w: w.name))


def _filename(wheel: dict[str, Any]) -> str:
    return str(
        wheel.get("name") or unquote(PurePosixPath(urlsplit(wheel.get("url") or wheel.get("path") or "").path).name)
    )


def _rank(wheel: dict[str, Any], ranks: dict[Tag, int]) -> tuple[int, int, str] | None:
    """Smaller is better; None when the wheel does not run there. Of equal tags the highest build number wins."""
    try:
        _, _, build, tags = parse_wheel_filename(_filename(wheel))
    except InvalidWheelFilename:
        return None
    found = [ranks[tag] for tag in tags if tag in ranks]
    if not found:
        return None
    return (min(found), -build[0], build[1]) if build else (min(found), 0, "")


def total_bytes(wheels: Iterable[LockedWheel]) -> int:
    """Bytes of the wheels whose size is known."""
    return sum(wheel.size or 0 for wheel in wheels)
