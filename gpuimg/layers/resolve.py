"""Requirements → lock: uv resolves for the image's Python and platform, not for this machine's."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from gpuimg.errors import BadInput, EnvironmentFault
from gpuimg.layers.lockfile import Platform

_NETWORK = ("error sending request", "Failed to fetch", "dns error", "Connection refused", "timed out", "certificate")


def lock_requirements(
    requirements: Sequence[str],
    platform: Platform,
    *,
    index_url: str | None = None,
    extra_index_urls: Sequence[str] = (),
    find_links: Sequence[str] = (),
    exclude_newer: str | None = None,
    timeout: float = 300,
) -> str:
    """Text of a ``pylock.toml`` (PEP 751) with wheels only, each with its hash.

    ``platform`` is the base image's, so newer manylinux wheels are not chosen. ``exclude_newer`` is a date (RFC 3339)
    that makes a later run resolve as on that day.

    Raises:
        BadInput: the requirements cannot be satisfied, with uv's reason; or a package has no wheel.
        EnvironmentFault: the index cannot be reached.
    """
    from uv import find_uv_bin

    with tempfile.TemporaryDirectory(prefix="gpuimg-lock-") as folder:
        asked = Path(folder, "requirements.in")
        asked.write_text("\n".join(requirements) + "\n")
        target = Path(folder, "pylock.toml")
        command = [
            find_uv_bin(), "pip", "compile", str(asked), "--no-config", "--quiet",
            "--format", "pylock.toml", "--output-file", str(target),
            "--python-version", platform.python,
            "--python-platform", f"{platform.machine}-manylinux_{platform.glibc.replace('.', '_')}",
            "--only-binary", ":all:", "--no-header",
            "--index-strategy", "unsafe-best-match" if extra_index_urls else "first-index",
        ]  # fmt: skip
        if index_url:
            command += ["--default-index", index_url]
        for url in extra_index_urls:
            command += ["--index", url]
        for place in find_links:
            command += ["--find-links", place]
        if exclude_newer:
            command += ["--exclude-newer", exclude_newer]
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=timeout,
                check=False,
                env={"UV_HTTP_TIMEOUT": "120", **os.environ},
            )
        except subprocess.TimeoutExpired:
            raise EnvironmentFault(f"the index did not answer within {timeout:.0f} s") from None
        if done.returncode:
            reason = " ".join(line.strip(" ╰─▶×│") for line in done.stderr.splitlines() if line.strip())
            if any(word in reason for word in _NETWORK):
                raise EnvironmentFault(f"the package index cannot be reached: {reason}")
            raise BadInput(f"{', '.join(requirements)}: cannot be resolved for Python {platform.python}: {reason}")
        return target.read_text()
