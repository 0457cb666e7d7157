"""Small real images for tests: a Debian base with Python, and images derived from it by adding files."""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import docker
import pytest
from docker import errors

BASE = "gpuimg-test/base:bookworm"
ORT = "gpuimg-test/onnxruntime:1.20.1"
ORT_REQUIREMENTS = ("onnxruntime==1.20.1", "numpy==2.1.3", "onnx==1.17.0")
_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def base_image(client: docker.DockerClient, registry: str) -> str:
    """Debian with Python 3.11; made once (about a minute) and kept in the registry."""
    name = f"{registry}/{BASE}"
    if _there(client, name):
        return name
    if shutil.which("mmdebstrap") is None:
        pytest.skip("no test base in the registry and no mmdebstrap to make one")
    make = subprocess.Popen(
        ["mmdebstrap", "-q", "--variant=minbase", "--include=python3,python3-venv,ca-certificates", "bookworm", "-"],
        stdout=subprocess.PIPE,
    )
    taken = subprocess.run(
        ["docker", "import", "-c", f"ENV {_PATH}", "-c", 'CMD ["python3"]', "-", name], stdin=make.stdout, check=False
    )
    if make.wait() or taken.returncode:
        pytest.skip("the test base could not be made (no package mirror?)")
    subprocess.run(["docker", "push", "-q", name], check=True, capture_output=True)
    return name


def onnxruntime_image(client: docker.DockerClient, registry: str, folder: Path) -> str:
    """The base with ONNX Runtime from PyPI; made once and kept in the registry."""
    name = f"{registry}/{ORT}"
    if _there(client, name):
        return name
    base = base_image(client, registry)
    command = [
        *(sys.executable, "-m", "pip", "install", "-q", "--target", str(folder / "site"), "--no-compile"),
        *("--only-binary=:all:", "--python-version", "3.11", "--implementation", "cp", "--abi", "cp311"),
        *("--platform", "manylinux_2_28_x86_64", "--platform", "manylinux_2_27_x86_64"),
        *("--platform", "manylinux2014_x86_64", *ORT_REQUIREMENTS),
    ]
    if subprocess.run(command, check=False).returncode:
        pytest.skip("no package index to take ONNX Runtime from")
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        archive.add(folder / "site", "opt/site")
    derive(
        client, base, name, archive=out.getvalue(), changes=["ENV PYTHONPATH=/opt/site LANG=C.UTF-8", 'CMD ["python3"]']
    )
    subprocess.run(["docker", "push", "-q", name], check=True, capture_output=True)
    return name


def derive(
    client: docker.DockerClient,
    base: str,
    name: str,
    files: dict[str, str] | None = None,
    *,
    archive: bytes | None = None,
    run: list[str] | None = None,
    changes: list[str] | None = None,
) -> str:
    """A new image: ``files`` (path → text, executable) or a tar added to ``base``, ``run`` executed in it."""
    container: Any = client.containers.create(base, command=run or ["true"], network_mode="none")
    try:
        if files:
            out = io.BytesIO()
            with tarfile.open(fileobj=out, mode="w") as tar:
                for path, text in files.items():
                    entry = tarfile.TarInfo(path.lstrip("/"))
                    entry.size, entry.mode = len(text.encode()), 0o755
                    tar.addfile(entry, io.BytesIO(text.encode()))
            archive = out.getvalue()
        if archive is not None:
            container.put_archive("/", archive)
        if run:
            container.start()
            assert container.wait()["StatusCode"] == 0, container.logs().decode()
        repository, _, tag = name.rpartition(":")
        container.commit(repository, tag, changes=changes or ['CMD ["python3"]'])
    finally:
        container.remove(force=True, v=True)
    return name


def push(name: str) -> str:
    """Push and return the digest."""
    from gpuimg.engine.registry import resolve_digest

    subprocess.run(["docker", "push", "-q", name], check=True, capture_output=True)
    digest = resolve_digest(name).digest
    assert digest is not None
    return digest


def _there(client: docker.DockerClient, name: str) -> bool:
    try:
        client.images.get(name)
    except errors.ImageNotFound:
        try:
            client.images.pull(name)
        except errors.DockerException:
            return False
    return True
