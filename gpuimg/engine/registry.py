"""OCI distribution client: blobs, manifests, tags of the same digest, referrers, promotion to other registries.

Own code because no maintained Python client keeps the referrers fallback index or promotes referrers along; the
protocol is small (https://github.com/opencontainers/distribution-spec/blob/main/spec.md).
Everything is bound to digests: bytes read are hashed and compared, and what was written is read back.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any
from urllib.parse import urljoin

import requests

from gpuimg import __version__
from gpuimg.engine.reference import DOCKER_HUB, Reference, is_digest, parse_reference
from gpuimg.errors import EnvironmentFault

OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
OCI_INDEX = "application/vnd.oci.image.index.v1+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_LIST = "application/vnd.docker.distribution.manifest.list.v2+json"
OCI_EMPTY = "application/vnd.oci.empty.v1+json"
EMPTY_BYTES = b"{}"
MANIFEST_TYPES = (OCI_MANIFEST, OCI_INDEX, DOCKER_MANIFEST, DOCKER_LIST)
INDEX_TYPES = (OCI_INDEX, DOCKER_LIST)

_CHUNK = 1 << 20
_TRIES = 4
_CONNECTS = 2
_TIMEOUT = (10.0, 120.0)
_KNOWN_CAUSES = (
    "Connection refused",
    "Name or service not known",
    "No route to host",
    "timed out",
    "certificate verify failed",
    "wrong version number",
    "Temporary failure in name resolution",
)


class RegistryError(EnvironmentFault):
    """The registry could not be reached, refused, or answered something unexpected (exit 4)."""


class Denied(RegistryError):
    """The registry asks for credentials it did not get, or these may not do this."""


class NotThere(RegistryError):
    """No such manifest or blob in that repository."""


@dataclass(frozen=True)
class Manifest:
    """A manifest exactly as the registry holds it; ``digest`` is computed from ``content``."""

    content: bytes
    media_type: str

    @property
    def digest(self) -> str:
        return digest_of(self.content)

    @property
    def document(self) -> dict[str, Any]:
        loaded = json.loads(self.content)
        if not isinstance(loaded, dict):
            raise RegistryError("the registry sent a manifest that is no JSON object")
        return loaded

    @property
    def descriptor(self) -> dict[str, Any]:
        return {"mediaType": self.media_type, "digest": self.digest, "size": len(self.content)}


@dataclass(frozen=True)
class Copied:
    """What a promotion did. ``bytes_sent`` counts what travelled through here (mounted blobs do not)."""

    digest: str
    referrers: tuple[str, ...]
    blobs_mounted: int
    blobs_present: int
    blobs_sent: int
    bytes_sent: int


def digest_of(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


def is_loopback(registry: str) -> bool:
    """True for hosts Docker itself treats as insecure by default (127.0.0.0/8, ::1, localhost)."""
    host = registry.rsplit(":", 1)[0] if re.search(r":\d+$", registry) else registry
    host = host.strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def parse_challenge(header: str) -> tuple[str, dict[str, str]]:
    """``WWW-Authenticate`` → (scheme in lower case, parameters)."""
    scheme, _, rest = header.partition(" ")
    pairs = re.findall(r'([A-Za-z_]+)=(?:"([^"]*)"|([^\s,]+))', rest)
    return scheme.lower(), {key.lower(): quoted or bare for key, quoted, bare in pairs}


class Registry:
    """One registry host: scheme, credentials, retries and error texts.

    Credentials come from Docker's own configuration (``docker login``, credential stores and helpers).
    Plain http is used for loopback hosts and those in ``GPUIMG_INSECURE_REGISTRIES`` (comma-separated) only.
    """

    def __init__(self, host: str, *, insecure: bool | None = None) -> None:
        self.host = host
        named = {h.strip() for h in os.environ.get("GPUIMG_INSECURE_REGISTRIES", "").split(",")}
        plain = (is_loopback(host) or host in named) if insecure is None else insecure
        api = "registry-1.docker.io" if host == DOCKER_HUB else host
        self.base = f"{'http' if plain else 'https'}://{api}"
        self._session = requests.Session()
        self._session.headers["User-Agent"] = f"gpuimg/{__version__}"
        own_ca = Path("/etc/docker/certs.d") / host / "ca.crt"
        if own_ca.is_file():  # where Docker itself looks for the CA of a private registry
            self._session.verify = str(own_ca)
            self._session.trust_env = False
        if is_loopback(host):
            self._session.trust_env = False  # a corporate proxy cannot reach our own loopback
        self._tokens: dict[str, str] = {}
        self._basic: tuple[str, str] | None = None

    def repository(self, name: str) -> Repository:
        return Repository(self, name)

    def ping(self) -> None:
        """Raises RegistryError when nothing there speaks the distribution protocol."""
        answer = self.request("GET", "/v2/", scope=None, ok=(200, 401, 403))
        if "docker-distribution-api-version" not in {k.lower() for k in answer.headers} and not answer.ok:
            raise RegistryError(f"{self.host} answers, but not as a container registry")

    def request(
        self,
        method: str,
        path: str,
        *,
        scope: str | None,
        ok: tuple[int, ...] = (200,),
        headers: dict[str, str] | None = None,
        data: Any = None,
        params: dict[str, str] | None = None,
        stream: bool = False,
        again: Callable[[], Any] | None = None,
    ) -> requests.Response:
        """One request with authentication and retries; ``again`` gives the body anew, None when it cannot be.

        Raises:
            NotThere: 404. Denied: 401/403. RegistryError: unreachable, or any other status not in ``ok``.
        """
        url = urljoin(self.base + "/", path) if not path.startswith("http") else path
        repeatable = data is None or isinstance(data, bytes) or again is not None
        asked_auth = False
        attempt = 0
        while True:
            attempt += 1
            send = dict(headers or {})
            token = self._tokens.get(scope or "")
            if token is not None and url.startswith(self.base):
                send["Authorization"] = f"Bearer {token}"
            basic = self._basic if token is None and url.startswith(self.base) else None
            try:
                answer = self._session.request(
                    method, url, headers=send, data=data, params=params, stream=stream, auth=basic,
                    timeout=_TIMEOUT,
                )  # fmt: skip
            except requests.RequestException as error:
                if repeatable and attempt < _CONNECTS and not isinstance(error, requests.exceptions.SSLError):
                    time.sleep(0.25 * 2**attempt)
                    data = again() if again is not None else data
                    continue
                raise RegistryError(
                    f"registry {self.host} cannot be reached: {_short(error)}",
                    hint="check the name and the network; a registry without TLS needs "
                    f"GPUIMG_INSECURE_REGISTRIES={self.host}",
                ) from error
            if answer.status_code in ok:
                return answer
            if answer.status_code == 401 and not asked_auth and repeatable:
                asked_auth = True
                if self._log_in(answer, scope):
                    data = again() if again is not None else data
                    continue
            if answer.status_code in (429, 500, 502, 503, 504) and repeatable and attempt < _TRIES:
                time.sleep(_wait(answer, attempt))
                data = again() if again is not None else data
                continue
            raise self._error(method, path, answer)

    def _log_in(self, answer: requests.Response, scope: str | None) -> bool:
        """True when there is something new to try the request with."""
        scheme, values = parse_challenge(answer.headers.get("WWW-Authenticate", ""))
        user, password, refresh = self._credentials()
        if scheme == "basic" and user is not None and password is not None:
            self._basic = (user, password)
            return True
        if scheme != "bearer" or "realm" not in values:
            return False
        query = {"service": values.get("service", ""), "client_id": "gpuimg"}
        wanted = scope or values.get("scope")
        if wanted:
            query["scope"] = wanted
        try:
            if refresh is not None:
                form = {**query, "grant_type": "refresh_token", "refresh_token": refresh}
                reply = self._session.post(values["realm"], data=form, timeout=_TIMEOUT)
            else:
                auth = (user, password) if user is not None and password is not None else None
                # Several scopes travel as repeated parameters, not as one with spaces.
                pairs = [(k, v) for k, v in query.items() if k != "scope"]
                pairs += [("scope", s) for s in query.get("scope", "").split()]
                reply = self._session.get(values["realm"], params=pairs, auth=auth, timeout=_TIMEOUT)
        except requests.RequestException as error:
            raise RegistryError(f"the token service of {self.host} cannot be reached: {_short(error)}") from error
        if not reply.ok:
            raise Denied(
                f"{self.host} refused the credentials for {wanted or 'this request'} ({reply.status_code})",
                hint=f"docker login {self.host}",
            )
        body = reply.json()
        token = body.get("token") or body.get("access_token")
        if not token:
            return False
        self._tokens[scope or ""] = str(token)
        return True

    def _credentials(self) -> tuple[str | None, str | None, str | None]:
        """(user, password, identity token) from Docker's configuration, all None when there are none."""
        from docker import auth, errors

        try:
            found = auth.load_config().resolve_authconfig(self.host) or {}
        except errors.DockerException as error:
            raise Denied(
                f"Docker's credential helper failed for {self.host}: {error}",
                hint=f"docker login {self.host}",
            ) from error
        identity = found.get("IdentityToken") or found.get("identitytoken")
        return (
            found.get("username") or found.get("Username"),
            found.get("password") or found.get("Password"),
            identity,
        )

    def _error(self, method: str, path: str, answer: requests.Response) -> RegistryError:
        said = _said(answer)
        place = f"{self.host}{path.split('/v2', 1)[-1]}" if not path.startswith("http") else self.host
        if answer.status_code in (401, 403):
            return Denied(
                f"{self.host} denies {'reading' if method in ('GET', 'HEAD') else 'writing'} {place}{said}",
                hint=f"docker login {self.host}",
            )
        if answer.status_code == 404:
            return NotThere(f"not in the registry: {place}{said}")
        if answer.status_code == 400 and "HTTPS server" in answer.text[:200]:
            return RegistryError(f"{self.host} speaks https, http was used", hint="leave it out of the insecure list")
        return RegistryError(f"{self.host} answered {answer.status_code} to {method} {place}{said}")


@dataclass
class Repository:
    """One repository of a registry: where layers, manifests and certificates are kept."""

    registry: Registry
    name: str
    _seen: set[str] = field(default_factory=set, repr=False)

    @classmethod
    def of(cls, reference: Reference | str, *, insecure: bool | None = None) -> Repository:
        """The repository an image name points into."""
        ref = parse_reference(reference) if isinstance(reference, str) else reference
        return Registry(ref.registry, insecure=insecure).repository(ref.repository)

    def __str__(self) -> str:
        return f"{self.registry.host}/{self.name}"

    # --- blobs ----------------------------------------------------------------------------------------------

    def has_blob(self, digest: str) -> bool:
        if digest in self._seen:
            return True
        answer = self._request("HEAD", f"blobs/{digest}", ok=(200, 404))
        if answer.status_code == 200:
            self._seen.add(digest)
        return answer.status_code == 200

    def open_blob(self, digest: str) -> Iterator[bytes]:
        """The blob in pieces; the last piece is only yielded when the whole matches the digest."""
        answer = self._request("GET", f"blobs/{digest}", stream=True)
        hashed = hashlib.sha256()
        held = b""
        for piece in answer.iter_content(_CHUNK):
            hashed.update(piece)
            if held:
                yield held
            held = piece
        if "sha256:" + hashed.hexdigest() != digest:
            raise RegistryError(f"{self}: blob {digest} arrived damaged")
        if held:
            yield held

    def read_blob(self, digest: str) -> bytes:
        return b"".join(self.open_blob(digest))

    def upload_blob(self, source: bytes | Path | IO[bytes] | Iterable[bytes], digest: str | None = None) -> str:
        """Store a blob and return its digest.

        Bytes and paths are hashed first and skipped when present; streams are hashed while they travel.

        Raises:
            RegistryError: ``digest`` was given and the content has another one, or the upload failed.
        """
        if isinstance(source, Path):
            found = digest or _hash_file(source)
            if self.has_blob(found):
                return found
            place, query = self._start_upload()
            with source.open("rb") as body:

                def rewind() -> IO[bytes]:
                    body.seek(0)
                    return body

                self._finish(place, query, found, body, size=source.stat().st_size, again=rewind)
            return found
        if isinstance(source, bytes):
            found = digest_of(source)
            if digest is not None and digest != found:
                raise RegistryError(f"content has digest {found}, {digest} was announced")
            if not self.has_blob(found):
                place, query = self._start_upload()
                self._finish(place, query, found, source, size=len(source))
            return found
        return self._upload_stream(source, digest)

    def _upload_stream(self, source: IO[bytes] | Iterable[bytes], digest: str | None) -> str:
        place, query = self._start_upload()
        hashed = hashlib.sha256()

        def pieces() -> Iterator[bytes]:
            for piece in _pieces(source):
                hashed.update(piece)
                yield piece

        answer = self.registry.request(
            "PATCH", place, scope=self._scope(), ok=(202, 204), data=pieces(), params=query,
            headers={"Content-Type": "application/octet-stream"},
        )  # fmt: skip
        found = "sha256:" + hashed.hexdigest()
        if digest is not None and digest != found:
            raise RegistryError(f"content has digest {found}, {digest} was announced")
        place = urljoin(self.registry.base, answer.headers["Location"])
        self._finish(place, {}, found, b"", size=0)
        return found

    def _start_upload(self) -> tuple[str, dict[str, str]]:
        answer = self._request("POST", "blobs/uploads/", ok=(202,), headers={"Content-Length": "0"})
        return urljoin(self.registry.base, answer.headers["Location"]), {}

    def _finish(
        self,
        place: str,
        query: dict[str, str],
        digest: str,
        body: bytes | IO[bytes],
        *,
        size: int,
        again: Callable[[], Any] | None = None,
    ) -> None:
        self.registry.request(
            "PUT", place, scope=self._scope(), ok=(201, 202, 204), data=body,
            params={**query, "digest": digest},
            headers={"Content-Type": "application/octet-stream", "Content-Length": str(size)}, again=again,
        )  # fmt: skip
        self._seen.add(digest)

    def mount_blob(self, digest: str, source: str) -> bool:
        """Take a blob over from repository ``source`` of the same registry; False when it cannot be."""
        if self.has_blob(digest):
            return True
        answer = self.registry.request(
            "POST", f"/v2/{self.name}/blobs/uploads/", ok=(201, 202, 404),
            scope=f"{self._scope()} repository:{source}:pull", params={"mount": digest, "from": source},
            headers={"Content-Length": "0"},
        )  # fmt: skip
        if answer.status_code == 202:  # not mounted: an upload was opened instead, close it again
            self.registry.request(
                "DELETE", urljoin(self.registry.base, answer.headers["Location"]), scope=self._scope(),
                ok=(200, 202, 204, 404, 405),
            )  # fmt: skip
        if answer.status_code == 201:
            self._seen.add(digest)
        return answer.status_code == 201

    # --- manifests ------------------------------------------------------------------------------------------

    def resolve(self, selector: str) -> str:
        """Digest of a tag (or of a digest, when it is there).

        Raises:
            NotThere: no such manifest.
        """
        try:
            answer = self._request("HEAD", f"manifests/{selector}", headers={"Accept": ", ".join(MANIFEST_TYPES)})
        except NotThere as error:
            raise NotThere(f"no image {self}{_sep(selector)}{selector}") from error
        said = answer.headers.get("Docker-Content-Digest", "")
        return said if is_digest(said) else self.get_manifest(selector).digest

    def get_manifest(self, selector: str) -> Manifest:
        """The manifest of a tag or digest; compared with the digest when that was asked for."""
        try:
            answer = self._request("GET", f"manifests/{selector}", headers={"Accept": ", ".join(MANIFEST_TYPES)})
        except NotThere as error:
            raise NotThere(f"no image {self}{_sep(selector)}{selector}") from error
        kind = answer.headers.get("Content-Type", "").split(";")[0].strip()
        manifest = Manifest(answer.content, kind)
        if is_digest(selector) and manifest.digest != selector:
            raise RegistryError(f"{self}: asked for {selector}, got a manifest with digest {manifest.digest}")
        return manifest

    def put_manifest(self, manifest: Manifest, tag: str | None = None) -> str:
        """Store a manifest under its digest or a tag, keep the referrers index, read back; return the digest.

        Raises:
            RegistryError: refused, or what reads back is not what was sent.
        """
        answer = self._request(
            "PUT", f"manifests/{tag or manifest.digest}", ok=(201, 202), data=manifest.content,
            headers={"Content-Type": manifest.media_type},
        )  # fmt: skip
        if self.get_manifest(tag or manifest.digest).content != manifest.content:
            raise RegistryError(f"{self}: the registry changed manifest {manifest.digest} while storing it")
        subject = manifest.document.get("subject")
        if isinstance(subject, dict) and "OCI-Subject" not in answer.headers:
            self._add_to_fallback(str(subject["digest"]), manifest)
        return manifest.digest

    def tag(self, digest: str, tag: str) -> str:
        """Give the same manifest bytes another tag; nothing is rebuilt or re-compressed."""
        found = self.put_manifest(self.get_manifest(digest), tag)
        if found != digest or self.resolve(tag) != digest:
            raise RegistryError(f"{self}:{tag} is {self.resolve(tag)}, not {digest}")
        return found

    def image_manifest(self, selector: str, architecture: str = "amd64") -> Manifest:
        """The manifest of one platform: an index is followed to its linux/``architecture`` entry.

        Raises:
            NotThere: the index has no such platform; the message lists those it has.
        """
        manifest = self.get_manifest(selector)
        if manifest.media_type not in INDEX_TYPES:
            return manifest
        seen: list[str] = []
        for entry in manifest.document.get("manifests", []):
            platform = entry.get("platform", {})
            name = f"{platform.get('os')}/{platform.get('architecture')}"
            if name == f"linux/{architecture}":
                return self.get_manifest(str(entry["digest"]))
            if platform.get("os") not in (None, "unknown"):
                seen.append(name)
        has = ", ".join(sorted(set(seen))) or "none named"
        raise NotThere(f"{self}{_sep(selector)}{selector} has no linux/{architecture} image; platforms there: {has}")

    def config(self, selector: str, architecture: str = "amd64") -> dict[str, Any]:
        """The image configuration (labels, env, user, entrypoint) without pulling the image."""
        manifest = self.image_manifest(selector, architecture)
        document = json.loads(self.read_blob(str(manifest.document["config"]["digest"])))
        return document if isinstance(document, dict) else {}

    # --- referrers ------------------------------------------------------------------------------------------

    def referrers(self, digest: str, artifact_type: str | None = None) -> list[dict[str, Any]]:
        """Manifests whose subject is ``digest``: from the API where there is one, else the fallback tag."""
        path: str | None = f"/v2/{self.name}/referrers/{digest}"
        found: list[dict[str, Any]] = []
        while path is not None:
            answer = self.registry.request("GET", path, scope=self._scope("pull"), ok=(200, 404))
            if answer.status_code == 404:
                break
            kind = answer.headers.get("Content-Type", "").split(";")[0]
            if kind not in (OCI_INDEX, "application/json"):
                break
            found += answer.json().get("manifests") or []
            following = answer.links.get("next", {}).get("url")
            path = urljoin(self.registry.base, following) if following else None
        if not found:
            found = self._fallback(digest)
        return [d for d in found if artifact_type is None or d.get("artifactType") == artifact_type]

    def attach(
        self,
        subject: Manifest,
        content: bytes,
        *,
        artifact_type: str,
        annotations: dict[str, str],
        title_suffix: str = ".json",
    ) -> str:
        """Attach a document to an image as an OCI 1.1 referrer; its digest, once it reads back.

        Layout after https://github.com/sigstore/cosign/blob/main/specs/BUNDLE_SPEC.md: one layer of the
        artifact's type, the empty config, ``subject``. The image itself is not touched, so its digest cannot change.
        """
        blob = self.upload_blob(content)
        empty = self.upload_blob(EMPTY_BYTES)
        document = {
            "schemaVersion": 2,
            "mediaType": OCI_MANIFEST,
            "artifactType": artifact_type,
            "config": {"mediaType": OCI_EMPTY, "digest": empty, "size": len(EMPTY_BYTES)},
            "layers": [
                {
                    "mediaType": artifact_type,
                    "digest": blob,
                    "size": len(content),
                    "annotations": {"org.opencontainers.image.title": blob.replace(":", "-") + title_suffix},
                }
            ],
            "subject": subject.descriptor,
            "annotations": annotations,
        }
        digest = self.put_manifest(Manifest(json.dumps(document, indent=2).encode(), OCI_MANIFEST))
        if digest not in {d["digest"] for d in self.referrers(subject.digest)}:
            raise RegistryError(f"{self}: {digest} was stored but is not listed as a referrer of {subject.digest}")
        return digest

    def attachments(self, digest: str, artifact_type: str) -> list[tuple[dict[str, Any], bytes]]:
        """(descriptor, content) of every document of that type attached to an image, oldest first."""
        out = []
        for descriptor in self.referrers(digest, artifact_type):
            manifest = self.get_manifest(str(descriptor["digest"])).document
            for layer in manifest.get("layers", []):
                out.append((descriptor, self.read_blob(str(layer["digest"]))))
        return sorted(out, key=lambda p: str(p[0].get("annotations", {}).get("org.opencontainers.image.created", "")))

    def _fallback(self, digest: str) -> list[dict[str, Any]]:
        try:
            listed = self.get_manifest(digest.replace(":", "-")).document.get("manifests")
        except NotThere:
            return []
        return listed if isinstance(listed, list) else []

    def _add_to_fallback(self, subject: str, manifest: Manifest) -> None:
        """Registries without the referrers API: the client keeps the index ``sha256-<hex>`` itself.

        Read, add, write, look again: two writers at once can lose an entry, so until ours is there.
        """
        document = manifest.document
        entry = {
            **manifest.descriptor,
            "artifactType": document.get("artifactType") or document.get("config", {}).get("mediaType"),
            "annotations": document.get("annotations") or {},
        }
        tag = subject.replace(":", "-")
        for _ in range(5):
            listed = self._fallback(subject)
            if any(d.get("digest") == manifest.digest for d in listed):
                return
            index = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [*listed, entry]}
            body = json.dumps(index, indent=2).encode()
            self._request("PUT", f"manifests/{tag}", ok=(201, 202), data=body, headers={"Content-Type": OCI_INDEX})
        if not any(d.get("digest") == manifest.digest for d in self._fallback(subject)):
            raise RegistryError(f"{self}: could not enter {manifest.digest} in the referrers index {tag}")

    # --- promotion ------------------------------------------------------------------------------------------

    def copy_to(
        self,
        target: Repository,
        digest: str,
        *,
        tags: Iterable[str] = (),
        with_referrers: bool = True,
        progress: Callable[[str], None] = lambda _: None,
    ) -> Copied:
        """Promote an image by digest: same bytes, then its certificates, then tags (last: no tag lies).

        Raises:
            RegistryError: either side refused; what was copied stays, and a second call continues there.
        """
        counts = {"mounted": 0, "present": 0, "sent": 0, "bytes": 0}
        self._copy_manifest(target, digest, counts, progress)
        copied: list[str] = []
        if with_referrers:
            for subject in self._family(digest):
                for descriptor in self.referrers(subject):
                    found = str(descriptor["digest"])
                    self._copy_manifest(target, found, counts, progress)
                    copied.append(found)
        for tag in tags:
            target.tag(digest, tag)
        return Copied(digest, tuple(copied), counts["mounted"], counts["present"], counts["sent"], counts["bytes"])

    def _family(self, digest: str) -> list[str]:
        manifest = self.get_manifest(digest)
        children = manifest.document.get("manifests", []) if manifest.media_type in INDEX_TYPES else []
        return [digest, *(str(c["digest"]) for c in children)]

    def _copy_manifest(
        self, target: Repository, digest: str, counts: dict[str, int], progress: Callable[[str], None]
    ) -> None:
        manifest = self.get_manifest(digest)
        document = manifest.document
        if manifest.media_type in INDEX_TYPES:
            for child in document.get("manifests", []):
                self._copy_manifest(target, str(child["digest"]), counts, progress)
        else:
            for blob in [document.get("config"), *document.get("layers", [])]:
                if isinstance(blob, dict):
                    self._copy_blob(target, str(blob["digest"]), int(blob.get("size", 0)), counts, progress)
        target.put_manifest(manifest)

    def _copy_blob(
        self,
        target: Repository,
        digest: str,
        size: int,
        counts: dict[str, int],
        progress: Callable[[str], None],
    ) -> None:
        if target.has_blob(digest):
            counts["present"] += 1
        elif target.registry.host == self.registry.host and target.mount_blob(digest, self.name):
            counts["mounted"] += 1
        else:
            progress(f"{digest[7:19]} {size / 1e6:.1f} MB")
            target.upload_blob(self.open_blob(digest), digest)
            counts["sent"] += 1
            counts["bytes"] += size

    # --- plumbing -------------------------------------------------------------------------------------------

    def _scope(self, actions: str = "pull,push") -> str:
        return f"repository:{self.name}:{actions}"

    def _request(
        self,
        method: str,
        path: str,
        *,
        ok: tuple[int, ...] = (200,),
        headers: dict[str, str] | None = None,
        data: Any = None,
        stream: bool = False,
    ) -> requests.Response:
        scope = self._scope("pull" if method in ("GET", "HEAD") else "pull,push")
        return self.registry.request(
            method, f"/v2/{self.name}/{path}", scope=scope, ok=ok, headers=headers, data=data, stream=stream
        )


def resolve_digest(reference: Reference | str) -> Reference:
    """The same image by digest, as its registry has it now."""
    ref = parse_reference(reference) if isinstance(reference, str) else reference
    return ref.with_digest(Repository.of(ref).resolve(ref.selector))


def _pieces(source: IO[bytes] | Iterable[bytes]) -> Iterator[bytes]:
    read = getattr(source, "read", None)
    if read is None:
        yield from source
        return
    while piece := read(_CHUNK):
        yield piece


def _hash_file(path: Path) -> str:
    hashed = hashlib.sha256()
    with path.open("rb") as body:
        while piece := body.read(_CHUNK):
            hashed.update(piece)
    return "sha256:" + hashed.hexdigest()


def _wait(answer: requests.Response, attempt: int) -> float:
    said = answer.headers.get("Retry-After", "")
    return min(float(said), 30.0) if said.isdigit() else 0.5 * 2**attempt


def _sep(selector: str) -> str:
    return "@" if is_digest(selector) else ":"


def _short(error: Exception) -> str:
    text = str(error)
    for known in _KNOWN_CAUSES:
        if known in text:
            return known.lower()
    return text[:200]


def _said(answer: requests.Response) -> str:
    try:
        errors = answer.json().get("errors") or []
        texts = [str(e.get("message") or e.get("code")) for e in errors if isinstance(e, dict)]
    except (ValueError, AttributeError):
        return ""
    return f" ({'; '.join(texts)})" if texts else ""
