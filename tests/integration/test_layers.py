"""Streamed layers against a real registry and engine."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from gpuimg.engine.registry import OCI_MANIFEST, Manifest, Registry, Repository, digest_of
from gpuimg.layers.assembly import OCI_CONFIG, Assembler
from gpuimg.layers.lockfile import LockedWheel
from gpuimg.layers.wheel_tar import Environment
from tests.wheels import make_wheel

pytestmark = pytest.mark.integration
ENVIRONMENT = Environment()


@pytest.fixture(scope="module")
def registry(registry_host: str) -> Registry:
    return Registry(registry_host)


@pytest.fixture
def foundation(registry: Registry, tmp_path: Path) -> tuple[Manifest, Repository]:
    """An image of one empty layer, as small as an image can be."""
    import gzip

    repository = registry.repository("gpuimg-test/foundation")
    tar = b"\0" * 10240
    layer = gzip.compress(tar, mtime=0)
    repository.upload_blob(layer)
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Env": ["PATH=/opt/venv/bin:/usr/bin"]},
            "rootfs": {"type": "layers", "diff_ids": [digest_of(tar)]},
            "history": [{"created_by": "test"}],
        }
    ).encode()
    repository.upload_blob(config)
    document = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": {"mediaType": OCI_CONFIG, "digest": digest_of(config), "size": len(config)},
        "layers": [
            {
                "mediaType": "application/vnd.oci.image.layer.v1.tar+gzip",
                "digest": digest_of(layer),
                "size": len(layer),
            }
        ],
    }
    manifest = Manifest(json.dumps(document).encode(), OCI_MANIFEST)
    repository.put_manifest(manifest, "empty")
    return manifest, repository


def locked(wheel: Path) -> LockedWheel:
    """A wheel on disk, already 'fetched' into the cache folder it is given."""
    import hashlib

    data = wheel.read_bytes()
    return LockedWheel("demo", "1.0", wheel.name, wheel.as_uri(), hashlib.sha256(data).hexdigest(), len(data))


def assembler(registry: Registry, folder: Path, wheel: Path, run: str) -> Assembler:
    made = Assembler(registry.repository(f"gpuimg-test/{run}/layers"), folder)
    place = made.wheels / locked(wheel).sha256 / wheel.name
    place.parent.mkdir(parents=True)
    place.write_bytes(wheel.read_bytes())
    return made


def test_two_builders_agree_and_the_second_uploads_nothing(
    registry: Registry,
    foundation: tuple[Manifest, Repository],
    tmp_path: Path,
    unique: str,
) -> None:
    wheel = make_wheel(tmp_path)
    one = assembler(registry, tmp_path / "one", wheel, unique)
    first = one.assemble(
        [locked(wheel)], ENVIRONMENT, *foundation, registry.repository(f"gpuimg-test/{unique}/a"), tag="x"
    )
    again = one.assemble(
        [locked(wheel)], ENVIRONMENT, *foundation, registry.repository(f"gpuimg-test/{unique}/a"), tag="x"
    )
    # another machine: an empty cache, the same registry, another team's repository
    two = assembler(registry, tmp_path / "two", wheel, unique)
    second = two.assemble(
        [locked(wheel)], ENVIRONMENT, *foundation, registry.repository(f"gpuimg-test/{unique}/b"), tag="x"
    )
    # and one that shares nothing at all
    three = assembler(registry, tmp_path / "three", wheel, f"{unique}-other")
    third = three.assemble(
        [locked(wheel)], ENVIRONMENT, *foundation, registry.repository(f"gpuimg-test/{unique}-other/c")
    )
    assert first.digest == again.digest == second.digest == third.digest
    assert (first.work.layers_made, again.work.layers_present, third.work.layers_made) == (1, 1, 1)
    assert second.work.layers_mounted == 1
    assert second.work.uploaded == 0
    assert second.work.fetched == 0


def test_the_engine_pulls_it_and_finds_the_files(
    registry: Registry,
    foundation: tuple[Manifest, Repository],
    tmp_path: Path,
    unique: str,
) -> None:
    wheel = make_wheel(tmp_path)
    target = registry.repository(f"gpuimg-test/{unique}/run")
    made = assembler(registry, tmp_path / "one", wheel, unique).assemble(
        [locked(wheel)], ENVIRONMENT, *foundation, target, tag="x", labels={"io.gpuimg.cell": "demo"}
    )
    reference = f"{target}@{made.digest}"
    subprocess.run(["docker", "pull", "-q", reference], check=True, capture_output=True)
    try:
        created = subprocess.run(
            ["docker", "create", reference, "none"], check=True, capture_output=True, text=True
        ).stdout.strip()
        out = subprocess.run(
            ["docker", "cp", f"{created}:/opt/venv/lib/python3.11/site-packages/demo/__init__.py", "-"],
            check=True,
            capture_output=True,
        ).stdout
        subprocess.run(["docker", "rm", created], check=True, capture_output=True)
        assert b"def main" in out
        label = subprocess.run(
            ["docker", "inspect", "-f", '{{index .Config.Labels "io.gpuimg.cell"}}', reference],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        assert label == "demo"
    finally:
        subprocess.run(["docker", "rmi", "-f", reference], check=False, capture_output=True)
