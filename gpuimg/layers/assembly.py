"""An image from a foundation and streamed wheel layers: fetch, convert and upload overlapped, then one manifest.

The foundation (base, distribution packages, user, environment, entry point) is built by BuildKit from the rendered
Dockerfile; it is small and seldom changes. Wheel layers are looked up, cheapest first: in the target repository, in
the registry's own layer repository (mounted, so a wheel travels to a registry once, ever), in the local cache; only
what is nowhere is fetched and made.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Event, Lock
from typing import Any

import requests

from gpuimg.engine.registry import (
    DOCKER_MANIFEST,
    EMPTY_BYTES,
    OCI_EMPTY,
    OCI_MANIFEST,
    Manifest,
    NotThere,
    Repository,
    digest_of,
)
from gpuimg.errors import BadInput, EnvironmentFault
from gpuimg.layers.blobs import Blob, BlobCache, Compression, cache_key
from gpuimg.layers.fetch import fetch_wheel
from gpuimg.layers.grouping import Group, group_wheels
from gpuimg.layers.lockfile import LockedWheel
from gpuimg.layers.wheel_tar import Environment

LAYER_ARTIFACT = "application/vnd.gpuimg.wheel-layer.v1+json"
OCI_CONFIG = "application/vnd.oci.image.config.v1+json"
_OCI_LAYER = {
    "application/vnd.docker.image.rootfs.diff.tar.gzip": "application/vnd.oci.image.layer.v1.tar+gzip",
    "application/vnd.docker.image.rootfs.diff.tar": "application/vnd.oci.image.layer.v1.tar",
}
FETCHERS, CONVERTERS, UPLOADERS = 4, 2, 2
"""Threads. Converting is what the cores are for; fetching and uploading wait for others most of the time."""

Say = Callable[[str], object]


@dataclass
class Work:
    """What one assembly did, in bytes and seconds; filled from several threads."""

    seconds: float = 0.0
    fetched: int = 0
    uploaded: int = 0
    layers: int = 0
    layers_present: int = 0
    layers_mounted: int = 0
    layers_from_cache: int = 0
    layers_made: int = 0
    _lock: Lock = field(default_factory=Lock, repr=False, compare=False)

    def count(self, **amounts: int) -> None:
        with self._lock:
            for name, amount in amounts.items():
                setattr(self, name, getattr(self, name) + amount)

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in Work.__dataclass_fields__ if not name.startswith("_")}


@dataclass(frozen=True)
class Assembled:
    """The image's manifest digest, its layers' blobs and what making it took."""

    digest: str
    blobs: tuple[Blob, ...]
    work: Work


class Assembler:
    """Makes images in one registry from locked wheels.

    ``cache`` holds blobs and wheels on this machine; ``layers`` is the registry's own repository of wheel layers.
    """

    def __init__(
        self,
        layers: Repository,
        cache: Path,
        *,
        compression: Compression = "zstd",
        keep_wheels: bool = False,
        say: Say = lambda _: None,
    ) -> None:
        self.layers = layers
        self.blobs = BlobCache(cache / "layers")
        self.wheels = cache / "wheels"
        self.compression = compression
        self.keep_wheels = keep_wheels
        self.say = say
        self.session = requests.Session()
        self._making: dict[str, Future[Blob]] = {}
        self._making_lock = Lock()
        self._stopped = Event()
        self._pools = tuple(ThreadPoolExecutor(n) for n in (FETCHERS, CONVERTERS, UPLOADERS))

    def close(self) -> None:
        for pool in self._pools:
            pool.shutdown(wait=True, cancel_futures=True)

    def stop(self) -> None:
        """Let what runs in other threads end soon: downloads break off (and resume another time), nothing new begins.

        A layer that is being written is written to its end.
        """
        self._stopped.set()
        for pool in self._pools:
            pool.shutdown(wait=False, cancel_futures=True)

    def _fetched(self, work: Work, count: int) -> None:
        if self._stopped.is_set():
            raise EnvironmentFault("stopped")
        work.count(fetched=count)

    def assemble(
        self,
        wheels: Sequence[LockedWheel],
        environment: Environment,
        foundation: Manifest,
        foundation_repository: Repository,
        target: Repository,
        *,
        tag: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Assembled:
        """Foundation + wheel layers → image in ``target``; returns its digest once the manifest reads back.

        Raises:
            EnvironmentFault: an index or registry could not be reached, or the disk is full.
            BadInput: a wheel cannot be read.
        """
        started = time.monotonic()
        work = Work()
        groups = group_wheels(wheels)
        with ThreadPoolExecutor(max(1, len(groups))) as each:
            futures = [each.submit(self._layer, group, environment, target, work) for group in groups]
            try:
                blobs = tuple(future.result() for future in futures)
            except BaseException:
                for future in futures:
                    future.cancel()
                raise
        work.layers = len(blobs)
        config = self._config(foundation, foundation_repository, blobs, labels or {})
        for layer in foundation.document["layers"]:
            self._bring(layer["digest"], foundation_repository, target)
        target.upload_blob(config)
        manifest = _manifest(foundation, config, blobs)
        digest = target.put_manifest(manifest, tag)
        work.seconds = round(time.monotonic() - started, 3)
        return Assembled(digest, blobs, work)

    # --- one layer ----------------------------------------------------------------------------------------------

    def _layer(self, group: Group, environment: Environment, target: Repository, work: Work) -> Blob:
        key = cache_key([wheel.sha256 for wheel in group.wheels], environment, self.compression)
        blob = self.blobs.get(key)
        if blob is not None and target.has_blob(blob.digest):
            work.count(layers_present=1)
            return blob
        blob = blob or self._from_registry(key)
        if blob is not None:
            if target.mount_blob(blob.digest, self.layers.name):
                self.blobs.remember(key, blob)
                work.count(layers_mounted=1)
                return blob
            if self.blobs.path(blob).exists():
                self._publish(key, blob, target, work)
                work.count(layers_from_cache=1)
                return blob
        with self._making_lock:  # several images of one matrix may want the same layer at the same time
            future = self._making.get(key)
            mine = future is None
            if future is None:
                future = self._making[key] = Future()
        if not mine:
            blob = future.result()
            self._publish(key, blob, target, work)
            work.count(layers_from_cache=1)
            return blob
        try:
            blob = self._make(key, group, environment, work)
            self._publish(key, blob, target, work)
        except BaseException as error:
            with self._making_lock:
                self._making.pop(key, None)
            future.set_exception(error)
            raise
        future.set_result(blob)
        work.count(layers_made=1)
        return blob

    def _make(self, key: str, group: Group, environment: Environment, work: Work) -> Blob:
        fetch, convert, _ = self._pools
        files = [
            fetch.submit(fetch_wheel, wheel, self.wheels, self.session, progress=lambda n: self._fetched(work, n))
            for wheel in group.wheels
        ]
        paths = [file.result() for file in files]
        started = time.monotonic()
        with _disk_errors(self.blobs.folder):
            blob = convert.submit(
                self.blobs.make, paths, environment, key=key, title=group.title, compression=self.compression
            ).result()
        self.say(f"layer {group.title}: {blob.size / 1e6:.0f} MB in {time.monotonic() - started:.1f} s")
        if not self.keep_wheels:
            for path in paths:
                path.unlink(missing_ok=True)
        return blob

    def _publish(self, key: str, blob: Blob, target: Repository, work: Work) -> None:
        """Upload into the layer repository, describe it there, mount into the target."""
        upload = self._pools[2]
        if not self.layers.has_blob(blob.digest):
            upload.submit(self.layers.upload_blob, self.blobs.path(blob), blob.digest).result()
            work.count(uploaded=blob.size)
            self.layers.upload_blob(EMPTY_BYTES)
            self.layers.put_manifest(_layer_manifest(blob), _layer_tag(key))
        if target.name != self.layers.name and not target.mount_blob(blob.digest, self.layers.name):
            upload.submit(target.upload_blob, self.blobs.path(blob), blob.digest).result()
            work.count(uploaded=blob.size)

    def _from_registry(self, key: str) -> Blob | None:
        """A layer another builder has put into this registry."""
        try:
            document = self.layers.get_manifest(_layer_tag(key)).document
        except NotThere:
            return None
        try:
            return Blob(**json.loads(document["annotations"]["io.gpuimg.layer"]))
        except (KeyError, ValueError, TypeError):
            return None

    # --- the image ----------------------------------------------------------------------------------------------

    def _bring(self, digest: str, source: Repository, target: Repository) -> None:
        if target.has_blob(digest):
            return
        same_registry = source.registry.host == target.registry.host
        if not (same_registry and target.mount_blob(digest, source.name)):
            target.upload_blob(source.open_blob(digest), digest)

    def _config(
        self, foundation: Manifest, repository: Repository, blobs: Sequence[Blob], labels: Mapping[str, str]
    ) -> bytes:
        config: dict[str, Any] = json.loads(repository.read_blob(foundation.document["config"]["digest"]))
        if config.get("rootfs", {}).get("type") != "layers":
            raise BadInput("the foundation's configuration has no rootfs; it is not an image")
        config["rootfs"]["diff_ids"] = [*config["rootfs"]["diff_ids"], *(blob.diff_id for blob in blobs)]
        config["history"] = [
            *config.get("history", []),
            *({"created_by": f"gpuimg layer: {blob.title}"[:256], "comment": "gpuimg.streamed"} for blob in blobs),
        ]
        inner = config.setdefault("config", {})
        inner["Labels"] = dict(sorted({**(inner.get("Labels") or {}), **labels}.items()))
        return json.dumps(config, sort_keys=True, separators=(",", ":")).encode()


def _manifest(foundation: Manifest, config: bytes, blobs: Sequence[Blob]) -> Manifest:
    if foundation.media_type not in (OCI_MANIFEST, DOCKER_MANIFEST):
        raise BadInput(f"the foundation is a {foundation.media_type}, not an image manifest of one platform")
    layers = [
        {**layer, "mediaType": _OCI_LAYER.get(layer["mediaType"], layer["mediaType"])}
        for layer in foundation.document["layers"]
    ]
    document = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": {"mediaType": OCI_CONFIG, "digest": digest_of(config), "size": len(config)},
        "layers": [*layers, *(blob.descriptor() for blob in blobs)],
    }
    return Manifest(json.dumps(document, separators=(",", ":")).encode(), OCI_MANIFEST)


def _layer_manifest(blob: Blob) -> Manifest:
    document = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "artifactType": LAYER_ARTIFACT,
        "config": {"mediaType": OCI_EMPTY, "digest": digest_of(EMPTY_BYTES), "size": len(EMPTY_BYTES)},
        "layers": [blob.descriptor()],
        "annotations": {"io.gpuimg.layer": json.dumps(asdict(blob), sort_keys=True)},
    }
    return Manifest(json.dumps(document, separators=(",", ":")).encode(), OCI_MANIFEST)


def _layer_tag(key: str) -> str:
    return f"wheel-{key[:48]}"


@contextmanager
def _disk_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise EnvironmentFault(
            f"cannot write layers below {folder}: {error.strerror or error}",
            hint="free disk space, or set GPUIMG_CACHE to another folder",
        ) from None
