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

from packaging.utils import canonicalize_name

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


def read_lock(text: str, *, file: str = "pylock.toml") -> tuple[LockedWheel, ...]:
    """The wheels of a lock made for one platform and Python, sorted by name.

    Raises:
        BadInput: not a lock, a package without a wheel, or a wheel without a sha256.
    """
    try:
        document: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{file}: not TOML: {error}") from None
    if document.get("lock-version", "").split(".")[0] != "1" or "packages" not in document:
        raise BadInput(f"{file}: not a pylock.toml of version 1 (PEP 751)")
    wheels = []
    for package in document["packages"]:
        label = f"{package.get('name')} {package.get('version', '')}".strip()
        found = package.get("wheels") or ([package["archive"]] if "archive" in package else [])
        if len(found) != 1:
            what = "no wheel, only source" if not found else f"{len(found)} wheels; lock for one platform"
            raise BadInput(f"{file}: {label}: {what}")
        wheel = found[0]
        url = wheel.get("url") or wheel.get("path") or ""
        filename = wheel.get("name") or unquote(PurePosixPath(urlsplit(url).path).name)
        sha256 = wheel.get("hashes", {}).get("sha256")
        if not sha256:
            raise BadInput(f"{file}: {label}: no sha256; a wheel that cannot be verified is not installed")
        wheels.append(
            LockedWheel(
                name=canonicalize_name(package["name"]),
                version=str(package.get("version", "")),
                filename=filename,
                url=url,
                sha256=sha256,
                size=wheel.get("size"),
            )
        )
    return tuple(sorted(wheels, key=lambda w: w.name))


def total_bytes(wheels: Iterable[LockedWheel]) -> int:
    """Bytes of the wheels whose size is known."""
    return sum(wheel.size or 0 for wheel in wheels)
