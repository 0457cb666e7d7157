"""The suite inside real containers: locked down ones, and ones that are wrong in a way a renter meets."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from gpuimg.engine.client import connect
from gpuimg.suite.document import read_document
from gpuimg.suite.pack import build_zipapp
from tests.integration.images import base_image

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def image(registry_host: str) -> str:
    return base_image(connect(), registry_host)


def run(image: str, tmp_path: Path, options: list[str], *argv: str) -> tuple[int, dict[str, dict[str, Any]], Any]:
    """Bind the zipapp read-only into a container without network and run it there."""
    suite = tmp_path / "suite.pyz"
    build_zipapp(suite)
    command = ["docker", "run", "--rm", "--network", "none", *options, "-v", f"{suite}:/suite.pyz:ro"]
    command += ["--entrypoint", "python3", image, "/suite.pyz", "--profile", "full", "--device", "cpu", "--nonce", "n"]
    done = subprocess.run([*command, *argv], capture_output=True, timeout=120, check=False)
    read = read_document(done.stdout.decode("utf-8"), "n")
    return done.returncode, {check["id"]: check for check in read.checks}, read


LOCKED = ["--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--user", "12345:0", "--read-only"]


def test_a_locked_down_container(image: str, tmp_path: Path) -> None:
    """No capabilities, foreign user, nothing writable but /dev/shm: the suite still runs and says what it saw."""
    code, checks, read = run(image, tmp_path, LOCKED, "--only", "host.sandbox", "--only", "host.limits")
    assert checks["host.sandbox"]["status"] == "pass"
    assert checks["host.sandbox"]["measured"]["container"] == "docker"
    assert int(checks["host.sandbox"]["measured"]["capabilities"], 16) == 0
    assert checks["host.sandbox"]["measured"]["uid"] == 12345
    assert read.environment["framework"] is None
    assert code == 0


@pytest.mark.parametrize(
    ("options", "check", "status", "reason", "hint"),
    [
        ([], "host.shm", "fail", "64 MiB", "--shm-size"),
        (["--shm-size=2g"], "host.shm", "pass", "", ""),
        (["--memory=1g", "--memory-swap=1g"], "host.limits", "fail", "1.0 GiB", "--memory"),
        (["--cpus=0.5"], "host.limits", "fail", "0.5 CPUs", "--cpus"),
        (["--pids-limit=64"], "host.limits", "fail", "64 processes", "--pids-limit"),
        (["-e", "LC_ALL=C"], "host.locale", "fail", "not UTF-8", "LANG=C.UTF-8"),
        ([], "host.locale", "fail", "not UTF-8", "LANG=C.UTF-8"),
        (["-e", "LANG=C.UTF-8"], "host.locale", "pass", "", ""),
    ],
    ids=["shm-default", "shm-2g", "memory", "half-a-cpu", "pids", "LC_ALL=C", "no-LANG", "UTF-8"],
)
def test_a_container_that_is_wrong(
    image: str, tmp_path: Path, options: list[str], check: str, status: str, reason: str, hint: str
) -> None:
    code, checks, _ = run(image, tmp_path, options, "--only", check)
    line = checks[check]
    assert line["status"] == status, line
    assert reason in str(line["reason"])
    assert hint in str(line["hint"]) or not hint
    assert code == (0 if status == "pass" else 1)


def test_the_out_of_memory_killer_is_named(image: str, tmp_path: Path) -> None:
    """The kernel kills inside the container's limit; the suite survives it and says so."""
    options = ["--memory=200m", "--memory-swap=200m"]
    code, checks, _ = run(
        image, tmp_path, options, "--only", "host.sandbox", "--run", "python3 -c 'x = b\"x\" * 10**9'"
    )
    assert code == 1
    assert checks["host.sandbox"]["status"] == "pass"
    assert checks["user.run"]["status"] == "fail"
    assert "out-of-memory killer" in checks["user.run"]["reason"]
    assert "--memory" in checks["user.run"]["hint"]
