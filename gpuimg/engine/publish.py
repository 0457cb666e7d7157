"""Bring an image that only the engine has into a registry, as it is, so that a certificate can name its digest.

The engine's own export (``docker save``, an OCI layout since Docker 25) is streamed blob by blob into the registry;
nothing is compressed again. For a 12 GB image and a registry on the same machine that takes a minute, where
``docker push`` compresses for many. The manifest's configuration is the image the engine runs: that is compared.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

from gpuimg.engine.client import connect
from gpuimg.engine.image import Image, find_image
from gpuimg.engine.reference import Reference, parse_reference
from gpuimg.engine.registry import DOCKER_LIST, OCI_INDEX, OCI_MANIFEST, Manifest, RegistryError, Repository
from gpuimg.errors import BadInput, EnvironmentFault

if TYPE_CHECKING:
    import docker

_SMALL = 4 << 20
"""Manifests and configurations are read into memory up to this size; larger blobs can only be layers."""
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Published:
    """What is in the registry now."""

    digest: str
    bytes_sent: int
    config: str
    """Digest of the image configuration; with Docker's classic image store it is the image id."""


def publish(
    client: docker.DockerClient,
    image: Image,
    target: Repository,
    *,
    tag: str | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Published:
    """Store the engine's image in a repository and return the digest it has there.

    Raises:
        EnvironmentFault: the engine is older than Docker 25, or the image was made for another engine's platform.
        RegistryError: the registry refused, or what was stored is not the image the engine has.
    """
    from docker import errors

    small: dict[str, bytes] = {}
    sent = 0
    try:
        stream = client.images.get(image.id).save(chunk_size=_CHUNK)
        reader = io.BufferedReader(_Reader(iter(stream)), _CHUNK)
        with tarfile.open(fileobj=reader, mode="r|", bufsize=_CHUNK) as archive:
            for member in archive:
                if not member.isfile():
                    continue
                body = archive.extractfile(member)
                assert body is not None
                if member.size <= _SMALL:
                    small[member.name] = body.read()
                    continue
                digest = _digest_of(member.name)
                if digest is None:
                    raise EnvironmentFault(
                        f"the engine exports images in an old form ({member.name})", hint="Docker 25 or newer"
                    )
                if not target.has_blob(digest):
                    progress(f"{digest[7:19]} {member.size / 1e6:.0f} MB")
                    target.upload_blob(_pieces(body), digest)
                    sent += member.size
    except errors.DockerException as error:
        raise EnvironmentFault(f"the engine could not export {image.reference}: {error}") from error
    except tarfile.TarError as error:
        raise EnvironmentFault(f"the engine's export of {image.reference} cannot be read: {error}") from error
    manifest = _manifest(small, image)
    config = str(manifest.document["config"]["digest"])
    for descriptor in [manifest.document["config"], *manifest.document["layers"]]:
        digest = str(descriptor["digest"])
        content = small.get(_name_of(digest))
        if content is not None and not target.has_blob(digest):
            target.upload_blob(content, digest)
            sent += len(content)
    digest = target.put_manifest(manifest, tag)
    if image.id not in (config, digest) and not _indexed(small, image.id, digest):
        raise RegistryError(f"{target}@{digest} has configuration {config}, the engine's image is {image.id}")
    return Published(digest, sent, config)


def _manifest(small: dict[str, bytes], image: Image) -> Manifest:
    """The image manifest for this platform out of the layout's index (and an index within, if there is one)."""
    if "index.json" not in small:
        raise EnvironmentFault("the engine's export is no OCI layout", hint="Docker 25 or newer")
    found: list[tuple[dict[str, Any], bytes]] = []
    waiting = list(json.loads(small["index.json"]).get("manifests", []))
    while waiting:
        descriptor = waiting.pop(0)
        content = small.get(_name_of(str(descriptor["digest"])))
        if content is None:
            continue  # another platform of a list: its content is not in this engine
        if descriptor.get("mediaType") in (OCI_INDEX, DOCKER_LIST):
            waiting += json.loads(content).get("manifests", [])
        else:
            found.append((descriptor, content))
    for descriptor, content in found:
        document = json.loads(content)
        config = small.get(_name_of(str(document.get("config", {}).get("digest"))))
        if config is not None and json.loads(config).get("architecture") == image.architecture:
            return Manifest(content, str(document.get("mediaType") or descriptor.get("mediaType") or OCI_MANIFEST))
    raise EnvironmentFault(f"the engine's export of {image.reference} holds no manifest for {image.architecture}")


def _indexed(small: dict[str, bytes], image_id: str, digest: str) -> bool:
    """With containerd's image store the id may be that of an index around the manifest."""
    content = small.get(_name_of(image_id))
    if content is None:
        return False
    return digest in {str(m.get("digest")) for m in json.loads(content).get("manifests", [])}


def _digest_of(name: str) -> str | None:
    parts = name.split("/")
    return f"{parts[-2]}:{parts[-1]}" if len(parts) == 3 and parts[0] == "blobs" else None


def _name_of(digest: str) -> str:
    return "blobs/" + digest.replace(":", "/")


def _pieces(body: IO[bytes]) -> Iterator[bytes]:
    while piece := body.read(_CHUNK):
        yield piece


class _Reader(io.RawIOBase):
    """A file over an iterator of pieces, for tarfile's stream mode."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._held = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._held:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._held = memoryview(piece)
        count = min(len(buffer), len(self._held))
        buffer[:count] = self._held[:count]
        self._held = self._held[count:]
        return count


def provide_digest(
    reference: str,
    *,
    client: docker.DockerClient | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Reference:
    """``name@digest`` of an image in the registry its name says: as it is there, else published from the engine.

    What the engine has under a tag counts before what the registry has, as everywhere in Docker.

    Raises:
        BadInput: ``reference`` is an image id, which names no repository. CannotTell: another architecture.
        EnvironmentFault: neither has it, or publishing failed.
    """
    if reference.startswith("sha256:"):
        raise BadInput(f"{reference} is an image id; a certificate needs a name", hint="docker tag it first")
    ref = parse_reference(reference)
    if ref.digest is not None:
        return ref.with_digest(ref.digest)
    engine = client or connect()
    image = find_image(engine, reference, progress=progress)
    if image.digest is None:
        progress(f"{reference} is in no registry: publishing it as it is")
        published = publish(engine, image, Repository.of(ref), tag=ref.tag, progress=progress)
        return ref.with_digest(published.digest)
    return ref.with_digest(image.digest)
