"""The main job on a real engine and registry: build, verify, certify, resume; and what goes wrong on the way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gpuimg.engine.registry import Registry

pytestmark = pytest.mark.integration

MATRIX = """schema: gpuimg/v1
registry: {registry}/{unique}
defaults: {{os: debian12, device: cpu, profile: smoke}}
images:
  - {{framework: onnxruntime, version: "1.20.1"}}
"""
CELL = "onnxruntime1.20.1-cpu-py311-debian12"


def gpuimg(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gpuimg", *arguments],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )


def document(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert "Traceback" not in done.stderr, done.stderr
    loaded = json.loads(done.stdout)
    assert isinstance(loaded, dict)
    return loaded


@pytest.fixture
def matrix(tmp_path: Path, registry_host: str, unique: str) -> Path:
    path = tmp_path / "m.yaml"
    path.write_text(MATRIX.format(registry=registry_host, unique=unique))
    return path


def test_certify_then_again_then_pull_by_digest(matrix: Path, registry_host: str, unique: str) -> None:
    first = gpuimg("certify", "m.yaml", "--json", cwd=matrix.parent)
    answer = document(first)
    assert first.returncode == 0, first.stderr
    (outcome,) = answer["outcomes"]
    assert outcome["state"] == "certified"

    # the digest in the certificate, under the certified tag and pulled, is one and the same
    repository = Registry(registry_host).repository(f"{unique}/onnxruntime")
    digest = repository.resolve(outcome["tag"].rpartition(":")[2])
    assert outcome["reference"] == f"{repository}@{digest}"
    bundles = repository.referrers(digest)
    assert len(bundles) == 1
    pulled = subprocess.run(["docker", "pull", outcome["reference"]], capture_output=True, text=True, check=True)
    assert digest in pulled.stdout
    label = subprocess.run(
        ["docker", "inspect", "-f", '{{index .Config.Labels "io.gpuimg.cell"}}', outcome["reference"]],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert label.stdout.strip() == CELL

    # nothing changed: nothing is done again
    started = time.monotonic()
    second = gpuimg("certify", "m.yaml", "--json", cwd=matrix.parent)
    assert document(second)["outcomes"][0]["state"] == "unchanged"
    assert second.returncode == 0
    assert time.monotonic() - started < 20

    # any --user can run it
    for user in ("10001", "65534:65534", "0"):
        ran = subprocess.run(
            ["docker", "run", "--rm", "--network", "none", "--user", user, outcome["reference"], "-c",
             "import onnxruntime, pathlib; pathlib.Path.home().joinpath('x').write_text('y'); print('ok')"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert ran.stdout.strip() == "ok", ran.stderr


def test_both_producers_give_the_same_files(matrix: Path, registry_host: str, unique: str) -> None:
    references = []
    for producer in ("stream", "buildkit"):
        done = gpuimg("build", "m.yaml", "--json", "--layers", producer, cwd=matrix.parent)
        assert done.returncode == 0, done.stderr[-3000:]
        references.append(document(done)["images"][0]["reference"])
    listings = []
    for reference in references:
        done = subprocess.run(
            ["docker", "run", "--rm", "--network", "none", "--user", "0", "--entrypoint", "/bin/sh", reference, "-c",
             "cd /opt/venv && find . -type f -not -path '*/__pycache__/*' | sort | xargs -d '\\n' sha256sum; "
             "find . -printf '%m %U:%G %p\\n' | grep -v __pycache__ | sort -k3"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        listings.append(done.stdout.splitlines())
    assert len(listings[0]) > 1000
    assert sorted(set(listings[0]) ^ set(listings[1])) == []


def containers() -> set[str]:
    """Our containers on this engine; other runs may have theirs."""
    found = subprocess.run(
        ["docker", "ps", "-aq", "--filter", "label=io.gpuimg.run"], capture_output=True, text=True, check=True
    )
    return set(found.stdout.split())


def test_killed_runs_resume(matrix: Path) -> None:
    before = containers()
    process = subprocess.Popen(
        [sys.executable, "-m", "gpuimg", "certify", "m.yaml", "--json"],
        cwd=matrix.parent, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert process.stderr is not None
    for line in process.stderr:
        if "verify with profile" in line:
            break
    time.sleep(1.0)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    done = gpuimg("certify", "m.yaml", "--json", cwd=matrix.parent)
    (outcome,) = document(done)["outcomes"]
    assert outcome["state"] == "certified"
    assert outcome["seconds"]["build"] < 5, "the image was built again"
    assert containers() <= before


def test_interrupt_ends_with_one_line_and_no_container(matrix: Path) -> None:
    before = containers()
    process = subprocess.Popen(
        [sys.executable, "-m", "gpuimg", "certify", "m.yaml"],
        cwd=matrix.parent, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    said = []
    for line in process.stderr:
        said.append(line)
        if "verify with profile" in line:
            break
    time.sleep(1.5)
    process.send_signal(signal.SIGINT)
    said += process.stderr.readlines()
    assert process.wait(60) == 130
    assert "Traceback" not in "".join(said)
    assert "interrupted" in "".join(said)
    assert containers() <= before


@pytest.mark.parametrize(
    ("arguments", "environment", "code", "words"),
    [
        (["certify", "absent.yaml"], {}, 2, "no such file"),
        (["certify", "m.yaml", "--registry", "127.0.0.1:9/x"], {}, 4, "127.0.0.1:9"),
        (["certify", "m.yaml"], {"DOCKER_HOST": "unix:///nonexistent.sock"}, 4, "no Docker Engine"),
        (["certify", "m.yaml", "--only", "tensor*"], {}, 2, "no cell matches"),
        (["certify"], {}, 2, "MATRIX"),
        (["certify", "--image", "{registry}/{unique}/none:1"], {}, 4, "no image"),
        (["certify", "--image", "UPPER/case:1"], {}, 2, "UPPER"),
    ],
)
def test_faults_give_one_clear_message(
    matrix: Path, registry_host: str, unique: str, arguments: list[str], environment: dict[str, str], code: int,
    words: str,
) -> None:  # fmt: skip
    filled = [a.format(registry=registry_host, unique=unique) for a in arguments]
    done = gpuimg(*filled, cwd=matrix.parent, **environment)
    assert done.returncode == code, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_an_impossible_cell_is_refused_and_the_others_go_on(matrix: Path) -> None:
    matrix.write_text(matrix.read_text() + '  - {framework: onnxruntime, version: "1.2.0"}\n')
    done = gpuimg("build", "m.yaml", "--json", cwd=matrix.parent)
    rows = {row["id"]: row for row in document(done)["images"]}
    assert "reference" in rows[CELL]
    assert "error" in rows["onnxruntime1.2.0-cpu-py311-debian12"]
    assert done.returncode == 1
