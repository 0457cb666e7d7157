"""Wheels from their index, verified while they arrive, resumed where they broke off."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path

import requests

from gpuimg.errors import EnvironmentFault
from gpuimg.layers.lockfile import LockedWheel

ATTEMPTS = 4
TIMEOUT_S = (10, 60)
"""Connect and read timeouts."""


def fetch_wheel(
    wheel: LockedWheel,
    folder: Path,
    session: requests.Session,
    *,
    progress: Callable[[int], object] = lambda _: None,
) -> Path:
    """The wheel's file in ``folder``, downloaded unless it is there; ``progress`` gets byte counts as they arrive.

    The file has its own name (its folder the hash), since installers read the name.

    Raises:
        EnvironmentFault: the index cannot be reached, or what it sends has another hash.
    """
    target = folder / wheel.sha256 / wheel.filename
    if target.exists():
        progress(target.stat().st_size)
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_suffix(".part")
    for attempt in range(ATTEMPTS):
        try:
            digest = _download(wheel, part, session, progress)
            break
        except requests.RequestException as error:
            if attempt == ATTEMPTS - 1:
                raise EnvironmentFault(
                    f"{wheel.filename}: download failed after {ATTEMPTS} attempts: {error}",
                    hint="check the network, or set a mirror in the matrix file (mirrors: pypi)",
                ) from None
            time.sleep(2**attempt)
    if digest != wheel.sha256:
        part.unlink(missing_ok=True)
        raise EnvironmentFault(
            f"{wheel.filename}: sha256 is {digest[:12]}…, the lock says {wheel.sha256[:12]}…",
            hint="the index or a proxy served another file; nothing was installed from it",
        )
    os.replace(part, target)
    return target


def _download(wheel: LockedWheel, part: Path, session: requests.Session, progress: Callable[[int], object]) -> str:
    digest = hashlib.sha256()
    start = 0
    if part.exists():
        with part.open("rb") as handle:
            while piece := handle.read(1 << 20):
                digest.update(piece)
                start += len(piece)
    headers = {"Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    with session.get(wheel.url, headers=headers, stream=True, timeout=TIMEOUT_S) as response:
        if response.status_code == 416:
            return digest.hexdigest()
        response.raise_for_status()
        if start and response.status_code != 206:
            digest, start = hashlib.sha256(), 0
        progress(start)
        with part.open("ab" if start else "wb") as handle:
            for piece in response.iter_content(1 << 20):
                digest.update(piece)
                handle.write(piece)
                progress(len(piece))
    return digest.hexdigest()
