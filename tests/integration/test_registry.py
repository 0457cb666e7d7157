"""The registry client against a real registry: digests hold, referrers are found, promotion moves the same bytes."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path

import pytest

from gpuimg.engine.registry import (
    OCI_INDEX,
    OCI_MANIFEST,
    Denied,
    Manifest,
    NotThere,
    Registry,
    RegistryError,
    Repository,
    digest_of,
)

pytestmark = pytest.mark.integration


def repository(host: str, name: str) -> Repository:
    return Registry(host).repository(f"gpuimg-test/{name}")


def small_image(target: Repository, text: bytes = b"layer") -> Manifest:
    """An image of one layer, made by hand: nothing here unpacks it."""
    config = json.dumps({"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": []}}).encode()
    layers = [
        {
            "mediaType": "application/vnd.oci.image.layer.v1.tar",
            "digest": target.upload_blob(text),
            "size": len(text),
        }
    ]
    document = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": {
            "mediaType": "application/vnd.oci.image.config.v1+json",
            "digest": target.upload_blob(config),
            "size": len(config),
        },
        "layers": layers,
    }
    manifest = Manifest(json.dumps(document).encode(), OCI_MANIFEST)
    target.put_manifest(manifest)
    return manifest


def test_blobs_by_bytes_path_and_stream(registry_host: str, unique: str, tmp_path: Path) -> None:
    target = repository(registry_host, unique)
    content = bytes(range(256)) * 20_000
    digest = "sha256:" + hashlib.sha256(content).hexdigest()
    assert not target.has_blob(digest)
    assert target.upload_blob(io.BytesIO(content)) == digest
    assert repository(registry_host, unique).has_blob(digest)
    assert target.read_blob(digest) == content
    (tmp_path / "blob").write_bytes(content + b"2")
    second = target.upload_blob(tmp_path / "blob")
    assert target.read_blob(second) == content + b"2"
    generator = (content[i : i + 7000] for i in range(0, len(content), 7000))
    assert target.upload_blob(generator, digest) == digest
    with pytest.raises(RegistryError, match="announced"):
        target.upload_blob(io.BytesIO(b"other"), digest)


def test_mount_moves_no_bytes(registry_host: str, unique: str) -> None:
    source, target = repository(registry_host, unique), repository(registry_host, unique + "-b")
    digest = source.upload_blob(unique.encode() * 1000)
    assert target.mount_blob(digest, source.name)
    assert repository(registry_host, unique + "-b").has_blob(digest)
    assert not target.mount_blob(digest_of(b"nowhere" + unique.encode()), source.name)


def test_tag_keeps_the_digest(registry_host: str, unique: str) -> None:
    target = repository(registry_host, unique)
    manifest = small_image(target)
    assert target.tag(manifest.digest, "certified") == manifest.digest
    assert target.resolve("certified") == manifest.digest
    assert target.get_manifest("certified").content == manifest.content
    small_image(target, b"another")
    assert target.resolve("certified") == manifest.digest


def test_errors_name_what_is_wrong(registry_host: str, unique: str) -> None:
    target = repository(registry_host, unique)
    with pytest.raises(NotThere, match=rf"no image {registry_host}/gpuimg-test/{unique}:nothing"):
        target.resolve("nothing")
    with pytest.raises(RegistryError, match=r"127\.0\.0\.1:1 cannot be reached: connection refused") as caught:
        Registry("127.0.0.1:1").repository("x").resolve("y")
    assert caught.value.exit_code == 4
    assert caught.value.hint


def test_index_is_followed_to_its_platform(registry_host: str, unique: str) -> None:
    target = repository(registry_host, unique)
    manifest = small_image(target)
    platform = {"os": "linux", "architecture": "arm64"}
    index = {
        "schemaVersion": 2,
        "mediaType": OCI_INDEX,
        "manifests": [{**manifest.descriptor, "platform": platform}],
    }
    digest = target.put_manifest(Manifest(json.dumps(index).encode(), OCI_INDEX), "multi")
    assert target.resolve("multi") == digest
    assert target.image_manifest("multi", "arm64").digest == manifest.digest
    with pytest.raises(NotThere, match="platforms there: linux/arm64"):
        target.image_manifest("multi", "amd64")


def test_attached_documents_are_found_again(registry_host: str, unique: str) -> None:
    """This registry (distribution 2.8) has no referrers API, so the fallback index is what is tested here."""
    target = repository(registry_host, unique)
    image = small_image(target)
    kind = "application/vnd.gpuimg.test+json"
    when = "org.opencontainers.image.created"
    second = target.attach(image, b'{"n": 2}', artifact_type=kind, annotations={when: "2026-02-01T00:00:00Z"})
    first = target.attach(image, b'{"n": 1}', artifact_type=kind, annotations={when: "2026-01-01T00:00:00Z"})
    other = target.attach(image, b'{"n": 3}', artifact_type="application/vnd.other", annotations={})
    assert {d["digest"] for d in target.referrers(image.digest)} == {first, second, other}
    found = target.attachments(image.digest, kind)
    assert [json.loads(content)["n"] for _, content in found] == [1, 2]
    manifest = target.get_manifest(first).document
    assert manifest["artifactType"] == kind
    assert manifest["config"]["mediaType"] == "application/vnd.oci.empty.v1+json"
    assert manifest["subject"]["digest"] == image.digest
    assert target.attach(image, b'{"n": 1}', artifact_type=kind, annotations={when: "2026-01-01T00:00:00Z"}) == first
    assert len(target.referrers(image.digest)) == 3


def test_promotion_takes_referrers_and_tags_along(registry_host: str, unique: str) -> None:
    source, target = repository(registry_host, unique), repository(registry_host, unique + "-prod")
    image = small_image(source, unique.encode())
    certificate = source.attach(image, b"{}", artifact_type="application/vnd.c", annotations={"a": "b"})
    done = source.copy_to(target, image.digest, tags=["v1", "latest"])
    assert target.resolve("v1") == target.resolve("latest") == image.digest
    assert done.referrers == (certificate,)
    assert [d["digest"] for d in target.referrers(image.digest)] == [certificate]
    assert done.blobs_mounted > 0
    assert done.bytes_sent == 0
    again = source.copy_to(target, image.digest, tags=["v1"])
    assert again.blobs_mounted == again.blobs_sent == 0


class _TokenRegistry:
    """A registry front that wants a bearer token, to see the login dance against real HTTP."""

    def __init__(self, user: str, password: str) -> None:
        import base64
        import threading
        from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

        expected = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
        outer = self
        self.scopes: list[str] = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path.startswith("/token"):
                    outer.scopes.append(self.path)
                    good = self.headers.get("Authorization") == expected
                    body = b'{"token": "secret"}' if good else b"{}"
                    self.answer(200 if good else 401, body)
                elif self.headers.get("Authorization") == "Bearer secret":
                    self.answer(200, b'{"schemaVersion": 2}', {"Content-Type": OCI_MANIFEST})
                else:
                    where = f'Bearer realm="http://127.0.0.1:{outer.port}/token",service="test"'
                    self.answer(401, b"{}", {"WWW-Authenticate": where})

            do_HEAD = do_GET

            def answer(self, code: int, body: bytes, headers: dict[str, str] | None = None) -> None:
                self.send_response(code)
                for key, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
                    self.send_header(key, value)
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.mark.parametrize("password", ["right", "wrong"])
def test_bearer_token_with_credentials_of_docker_login(
    password: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import base64

    front = _TokenRegistry("user", "right")
    host = f"127.0.0.1:{front.port}"
    auth = base64.b64encode(f"user:{password}".encode()).decode()
    (tmp_path / "config.json").write_text(json.dumps({"auths": {host: {"auth": auth}}}))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    try:
        target = Registry(host).repository("team/x")
        if password == "right":
            assert target.get_manifest("latest").document == {"schemaVersion": 2}
            assert any("scope=repository%3Ateam%2Fx%3Apull" in s for s in front.scopes)
        else:
            with pytest.raises(Denied, match="refused the credentials") as caught:
                target.get_manifest("latest")
            assert caught.value.hint == f"docker login {host}"
    finally:
        front.server.shutdown()


class _ReferrersRegistry:
    """The real registry behind a front that has the referrers API of OCI 1.1, two entries a page."""

    def __init__(self, real: str) -> None:
        import threading
        from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
        from urllib.parse import parse_qs, urlsplit

        import requests

        outer = self
        self.known: dict[str, list[dict[str, object]]] = {}

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def pass_on(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                place = urlsplit(self.path)
                if "/referrers/" in place.path:
                    return self.list_them(place.path.rpartition("/")[2], int(parse_qs(place.query).get("at", ["0"])[0]))
                kept = {k: v for k, v in self.headers.items() if k.lower() not in ("host", "content-length")}
                answer = requests.request(
                    self.command, f"http://{real}{self.path}", data=body, headers=kept, timeout=60
                )
                headers = {k: v for k, v in answer.headers.items() if k in ("Content-Type", "Docker-Content-Digest")}
                if "Location" in answer.headers:
                    headers["Location"] = answer.headers["Location"].replace(real, f"127.0.0.1:{outer.port}")
                if self.command == "PUT" and "/manifests/" in place.path and b'"subject"' in body:
                    document = json.loads(body)
                    subject = document["subject"]["digest"]
                    entry = {**Manifest(body, OCI_MANIFEST).descriptor, "artifactType": document["artifactType"]}
                    outer.known.setdefault(subject, []).append(entry)
                    headers["OCI-Subject"] = subject
                self.reply(answer.status_code, answer.content, headers)

            do_GET = do_HEAD = do_PUT = do_POST = do_PATCH = do_DELETE = pass_on

            def list_them(self, digest: str, at: int) -> None:
                entries = outer.known.get(digest, [])
                index = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": entries[at : at + 2]}
                headers = {"Content-Type": OCI_INDEX}
                if len(entries) > at + 2:
                    headers["Link"] = f'<{self.path.split("?")[0]}?at={at + 2}>; rel="next"'
                self.reply(200, json.dumps(index).encode(), headers)

            def reply(self, code: int, body: bytes, headers: dict[str, str]) -> None:
                self.send_response(code)
                for key, value in headers.items():
                    self.send_header(key, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


def test_referrers_api_is_used_where_there_is_one(registry_host: str, unique: str) -> None:
    front = _ReferrersRegistry(registry_host)
    try:
        target = Registry(f"127.0.0.1:{front.port}").repository(f"gpuimg-test/{unique}")
        image = small_image(target)
        made = {
            target.attach(image, b"%d" % n, artifact_type=f"application/x.{n % 2}", annotations={}) for n in range(5)
        }
        assert {d["digest"] for d in target.referrers(image.digest)} == made
        assert len(target.referrers(image.digest, "application/x.1")) == 2
        with pytest.raises(NotThere):  # no fallback index was written
            repository(registry_host, unique).resolve(image.digest.replace(":", "-"))
    finally:
        front.server.shutdown()
