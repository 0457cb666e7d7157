"""What integration tests stand on: a real engine and a real registry. Never a mock."""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid

import pytest

from gpuimg.engine.registry import Registry
from gpuimg.errors import EnvironmentFault


@pytest.fixture(scope="session")
def registry_host() -> str:
    """Host of a registry to write into: GPUIMG_TEST_REGISTRY, else the local one."""
    host = os.environ.get("GPUIMG_TEST_REGISTRY", "127.0.0.1:5000")
    try:
        Registry(host).ping()
    except EnvironmentFault as error:
        pytest.skip(f"no registry at {host}: {error}")
    return host


@pytest.fixture(scope="session", autouse=True)
def engine() -> None:
    """Skip, with the reason, where no engine answers."""
    if shutil.which("docker") is None:
        pytest.skip("no docker command")
    answer = subprocess.run(["docker", "info"], capture_output=True, text=True, check=False)
    if answer.returncode:
        pytest.skip(f"no Docker engine: {answer.stderr.strip()[-200:]}")


@pytest.fixture
def unique() -> str:
    """A name no other test run uses, for repositories and tags."""
    return f"t{uuid.uuid4().hex[:10]}"
