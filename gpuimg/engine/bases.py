"""Base images: the published one where it can be had, else an equivalent made from distribution packages.

Which one was used is part of the answer (``BaseImage.origin``), printed, recorded and labelled.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import zstandard

from gpuimg.engine.reference import DOCKER_HUB, Reference, parse_reference
from gpuimg.engine.registry import OCI_MANIFEST, Manifest, NotThere, RegistryError, Repository, digest_of
from gpuimg.errors import BadInput, EnvironmentFault, nearest
from gpuimg.knowledge import load
from gpuimg.nouns import BaseImage

DEBIAN_SUITES = {"debian11": "bullseye", "debian12": "bookworm", "debian13": "trixie"}
RECIPE = "2"
"""Changes when the same packages would give other bytes."""
DEBIAN_MIRROR = "http://deb.debian.org/debian"
_PACKAGES = ("ca-certificates", "python3", "python3-venv")
_EXCLUDED = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/info/*", "/usr/share/locale/*", "/usr/share/lintian/*")
_REACH_TIMEOUT = 3.0

Say = Callable[[str], object]


def provide_base(
    wanted: str,
    os_name: str,
    target: Repository,
    *,
    cache: Path,
    mirror: str | None = None,
    apt_mirror: str | None = None,
    say: Say = lambda _: None,
) -> BaseImage:
    """A base that BuildKit can pull, by digest.

    ``wanted`` is the published reference ('debian:12-slim', 'nvidia/cuda:12.4.1-base-ubuntu22.04'), ``target`` the
    repository that keeps bootstrapped bases.

    Raises:
        BadInput: the registry answers and has no such tag (deleted upstream); the nearest existing one is named.
        EnvironmentFault: no registry can be reached and this base cannot be made from packages.
    """
    reference = parse_reference(wanted)
    for place, origin in _places(reference, mirror):
        if not _reachable(place.registry):
            continue
        repository = Repository.of(place)
        try:
            digest = repository.image_manifest(place.selector).digest
        except NotThere:
            raise _deleted(reference) from None
        except RegistryError:
            continue
        return BaseImage(
            reference=f"{place.name}@{digest}",
            origin="mirror" if origin == "mirror" else "registry",
            flavour=_flavour(reference),
            base_cuda=_base_cuda(reference),
            os=os_name,
            digest=digest,
        )
    if reference.repository.endswith("nvidia/cuda") and _flavour(reference) != "base":
        raise EnvironmentFault(
            f"no registry with {wanted} can be reached, and its CUDA libraries cannot be made from packages",
            hint="name a mirror in the matrix (mirrors: docker), or import the base: docker load / docker push",
        )
    return bootstrap(os_name, target, cache=cache, apt_mirror=apt_mirror, say=say)


def bootstrap(
    os_name: str, target: Repository, *, cache: Path, apt_mirror: str | None = None, say: Say = lambda _: None
) -> BaseImage:
    """A minimal Debian with Python and CA certificates, made by mmdebstrap and pushed to ``target``.

    Kept in the registry and in ``cache``; remove ``<cache>/bases`` to take up newer packages. The same packages give
    the same bytes: times come from the archive's own date.

    Raises:
        EnvironmentFault: mmdebstrap is missing or failed, or the distribution is not one it can make here.
    """
    suite = DEBIAN_SUITES.get(os_name)
    if suite is None:
        raise EnvironmentFault(
            f"no registry with a base for {os_name} can be reached; from packages these can be made: "
            + ", ".join(DEBIAN_SUITES),
            hint="set os: debian12 in the matrix, or name a mirror (mirrors: docker)",
        )
    uri = apt_mirror or _host_mirror() or DEBIAN_MIRROR
    tag = f"{os_name}-{_recipe_key(os_name)}"
    try:
        manifest = target.get_manifest(tag)
        return _bootstrapped(os_name, target, manifest)
    except NotThere:
        pass
    folder = cache / "bases" / tag
    if not (folder / "manifest.json").exists():
        program = shutil.which("mmdebstrap")
        if program is None:
            raise EnvironmentFault(
                "no base image registry can be reached, and mmdebstrap is not installed",
                hint="sudo apt-get install mmdebstrap debian-archive-keyring",
            )
        say(f"no base registry can be reached: making {os_name} from {suite} packages (about 30 s)")
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="part-", dir=folder.parent) as place:
            made = Path(place, "image")
            made.mkdir()
            tar = Path(place, "base.tar")
            snapshot = _mmdebstrap(program, suite, uri, tar, Path(place))
            _pack(tar, os_name, snapshot, made)
            shutil.rmtree(folder, ignore_errors=True)
            made.rename(folder)
    manifest = Manifest((folder / "manifest.json").read_bytes(), OCI_MANIFEST)
    target.upload_blob(folder / "layer.zst", manifest.document["layers"][0]["digest"])
    target.upload_blob((folder / "config.json").read_bytes())
    target.put_manifest(manifest, tag)
    return _bootstrapped(os_name, target, manifest)


def _places(reference: Reference, mirror: str | None) -> Iterator[tuple[Reference, str]]:
    if mirror:
        host, _, path = mirror.removeprefix("https://").removeprefix("http://").strip("/").partition("/")
        name = f"{path}/{reference.repository}" if path else reference.repository
        yield Reference(host, name, reference.tag, reference.digest), "mirror"
    yield reference, "registry"
    if reference.registry == DOCKER_HUB and reference.repository == "nvidia/cuda":
        yield Reference("nvcr.io", "nvidia/cuda", reference.tag, reference.digest), "registry"


def _reachable(registry: str) -> bool:
    """A quick look before the client's patient retries; behind a proxy only the client can tell."""
    if os.environ.get("HTTPS_PROXY") or os.environ.get("https_proxy"):
        return True
    host, _, port = ("registry-1.docker.io" if registry == DOCKER_HUB else registry).partition(":")
    try:
        with socket.create_connection((host, int(port or 443)), timeout=_REACH_TIMEOUT):
            return True
    except (OSError, ValueError):
        return False


def _deleted(reference: Reference) -> BadInput:
    tags = [t.tag for t in load().base_tags if t.repository == reference.repository and not t.deleted]
    near = nearest(reference.tag or "", tags)
    hint = f"the nearest existing tag is {reference.repository}:{near}" if near else None
    return BadInput(f"{reference} does not exist; NVIDIA deletes tags six months after their end of life", hint=hint)


def _flavour(reference: Reference) -> Any:
    if not reference.repository.endswith("cuda"):
        return "distribution"
    tag = reference.tag or ""
    if "cudnn" in tag:
        return "devel" if "devel" in tag else "cudnn-runtime"
    return next((f for f in ("devel", "runtime", "base") if f in tag), "devel")


def _base_cuda(reference: Reference) -> str | None:
    found = re.match(r"(\d+\.\d+)", reference.tag or "")
    return found.group(1) if found and reference.repository.endswith("cuda") else None


def _recipe_key(os_name: str) -> str:
    text = json.dumps([RECIPE, os_name, _PACKAGES, _EXCLUDED])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _host_mirror() -> str | None:
    """The Debian mirror this machine already uses, when it is a Debian."""
    for file in [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))]:
        try:
            text = file.read_text(errors="replace")
        except OSError:
            continue
        found = re.search(r"(https?://\S+/debian)/?(?:\s|$)", text)
        if found:
            return found.group(1)
    return None


def _mmdebstrap(program: str, suite: str, uri: str, tar: Path, folder: Path) -> str:
    """Run it; returns the archive's date (RFC 3339), which also becomes the files' newest time."""
    released = _release_date(uri, suite)
    command = [
        program, "--variant=minbase", f"--include={','.join(_PACKAGES)}", "--components=main",
        *(f"--dpkgopt=path-exclude={pattern}" for pattern in _EXCLUDED),
        "--aptopt=Acquire::Languages \"none\"",
        '--customize-hook=cd "$1" && rm -rf var/cache/apt/* var/lib/apt/lists/* var/log/* var/cache/ldconfig',
        suite, str(tar), f"deb {uri} {suite} main",
    ]  # fmt: skip
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(released or 0)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder, check=False)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.startswith(("E:", "W:"))]
        raise EnvironmentFault(
            f"mmdebstrap could not make {suite} from {uri}: " + (" ".join(lines[-3:]) or done.stderr[-300:]),
            hint="check the mirror (mirrors: apt in the matrix) and the network",
        )
    return datetime.fromtimestamp(released or 0, timezone.utc).isoformat()


def _release_date(uri: str, suite: str) -> int | None:
    import requests

    try:
        answer = requests.get(f"{uri}/dists/{suite}/InRelease", timeout=20)
        found = re.search(r"^Date: (.+)$", answer.text, re.MULTILINE)
        return int(parsedate_to_datetime(found.group(1)).timestamp()) if found else None
    except (requests.RequestException, ValueError, TypeError):
        return None


def _pack(tar: Path, os_name: str, snapshot: str, folder: Path) -> None:
    """The tar as layer, configuration and manifest of an image, in ``folder``."""
    plain, packed = hashlib.sha256(), hashlib.sha256()
    blob = folder / "layer.zst"
    compressor = zstandard.ZstdCompressor(level=3).compressobj()
    with tar.open("rb") as source, blob.open("wb") as out:
        while piece := source.read(1 << 20):
            plain.update(piece)
            data = compressor.compress(piece)
            packed.update(data)
            out.write(data)
        data = compressor.flush()
        packed.update(data)
        out.write(data)
    config = json.dumps(
        {
            "architecture": "arm64" if os.uname().machine == "aarch64" else "amd64",
            "os": "linux",
            "created": snapshot,
            "config": {
                "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
                "Cmd": ["bash"],
                "Labels": {
                    "io.gpuimg.base.origin": "bootstrapped",
                    "io.gpuimg.base.os": os_name,
                    "io.gpuimg.base.snapshot": snapshot,
                },
            },
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{plain.hexdigest()}"]},
            "history": [{"created": snapshot, "created_by": f"gpuimg base {os_name}: " + " ".join(_PACKAGES)}],
        },
        sort_keys=True,
    ).encode()
    (folder / "config.json").write_bytes(config)
    document = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": {
            "mediaType": "application/vnd.oci.image.config.v1+json",
            "digest": digest_of(config),
            "size": len(config),
        },
        "layers": [
            {
                "mediaType": "application/vnd.oci.image.layer.v1.tar+zstd",
                "digest": f"sha256:{packed.hexdigest()}",
                "size": blob.stat().st_size,
            }
        ],
    }
    (folder / "manifest.json").write_text(json.dumps(document))


def _bootstrapped(os_name: str, target: Repository, manifest: Manifest) -> BaseImage:
    config = json.loads(target.read_blob(manifest.document["config"]["digest"]))
    return BaseImage(
        reference=f"{target}@{manifest.digest}",
        origin="bootstrapped",
        flavour="distribution",
        base_cuda=None,
        os=os_name,
        digest=manifest.digest,
        snapshot=config["config"]["Labels"].get("io.gpuimg.base.snapshot"),
    )
