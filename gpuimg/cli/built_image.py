"""A built image's config through Docker, for ``--image``. Nothing is pulled."""

from __future__ import annotations

from typing import Any

from gpuimg.errors import BadInput, EnvironmentFault


def inspect_image(reference: str) -> dict[str, Any]:
    """{'Labels': {…}, 'Env': {…}} of a local image. Raises EnvironmentFault without an engine, BadInput without
    the image."""
    import docker
    from docker.errors import DockerException, ImageNotFound, NotFound

    try:
        client = docker.from_env()
        found = client.images.get(reference)
    except (ImageNotFound, NotFound) as error:
        raise BadInput(f"{reference}: no such image here; docker pull it first, or give its name to --base") from error
    except DockerException as error:
        raise EnvironmentFault(f"no Docker engine to read {reference} with: {error}", hint="gpuimg doctor") from error
    config = found.attrs.get("Config") or {}
    env = dict(line.partition("=")[::2] for line in config.get("Env") or [])
    return {
        "Labels": config.get("Labels") or {},
        "Env": env,
        "Architecture": found.attrs.get("Architecture"),
    }
