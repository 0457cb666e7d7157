"""The connection to the Docker Engine a user already has: ``DOCKER_HOST``, the current context, or the local socket."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuimg.errors import EnvironmentFault

if TYPE_CHECKING:
    import docker

_SLOW = 300
"""Seconds one API call may take; deleting or unpacking a 10 GB image blocks for minutes."""


def connect() -> docker.DockerClient:
    """A client whose engine answered.

    Raises:
        EnvironmentFault: no engine answers there; the message names the address.
    """
    import os

    import docker
    from docker import errors

    address = os.environ.get("DOCKER_HOST") or _context_address()
    try:
        if os.environ.get("DOCKER_HOST") or address is None:
            client = docker.from_env(timeout=_SLOW)
        else:
            client = docker.DockerClient(base_url=address, timeout=_SLOW)
        client.ping()
    except (errors.DockerException, OSError) as error:
        where = address or "unix:///var/run/docker.sock"
        text = str(error)
        if "Permission denied" in text:
            raise EnvironmentFault(
                f"the Docker Engine at {where} refuses this user",
                hint="sudo usermod -aG docker $USER, then log in again",
            ) from error
        raise EnvironmentFault(
            f"no Docker Engine answers at {where}", hint="start it, or run: gpuimg doctor"
        ) from error
    return client


def is_local(client: docker.DockerClient) -> bool:
    """True when the engine runs on this machine, so that its devices and spec files can be looked at here."""
    return str(client.api.base_url).startswith(("http+docker://", "unix://", "http://localhost"))


def _context_address() -> str | None:
    """Address of the current docker context, None for the default one (or when it needs TLS files from the SDK)."""
    from docker import errors
    from docker.context import ContextAPI

    try:
        context = ContextAPI.get_current_context()
    except (errors.DockerException, OSError, ValueError):
        return None
    if context is None or context.name == "default":
        return None
    host = context.Host
    return str(host) if host else None
