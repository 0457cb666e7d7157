"""``gpuimg verify`` as a user calls it: exit codes, one JSON document, files written, own commands and profiles."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner, Result

from gpuimg.cli import cli
from gpuimg.engine.client import connect
from tests.integration.images import onnxruntime_image

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def ort(registry_host: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    return onnxruntime_image(connect(), registry_host, tmp_path_factory.mktemp("site"))


def call(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["verify", *arguments], standalone_mode=False)


def statuses(document: dict[str, Any]) -> dict[str, str]:
    return {c["id"]: c["status"] for c in document["evidence"]["checks"]}


def test_good_image_without_gpu_is_proven_for_cpu(ort: str, tmp_path: Path) -> None:
    result = call(ort, "--profile", "smoke", "--gpus", "none", "--out", str(tmp_path), "--json")
    assert result.return_value == 0, result.output
    document = json.loads(result.stdout)
    assert document["answer"] == "passed"
    assert document["verdict"]["scope"]["device"] == "cpu"
    assert statuses(document)["compute.matmul"] == "pass"
    assert {p.name for p in tmp_path.iterdir()} == {
        "evidence.json", "verdict.json", "report.html", "report.md", "junit.xml",
    }  # fmt: skip
    [suite] = ET.parse(tmp_path / "junit.xml").getroot()
    assert suite.attrib["failures"] == "0"


@pytest.mark.parametrize(("command", "code"), [("python3 -c 'import onnxruntime'", 0), ("exit 9", 1)])
def test_own_command_is_one_more_required_check(ort: str, command: str, code: int) -> None:
    result = call(ort, "--profile", "smoke", "--gpus", "none", "--run", command, "--json")
    assert result.return_value == code, result.output
    assert statuses(json.loads(result.stdout))["user.run"] == ("pass" if code == 0 else "fail")


def test_part_of_a_profile_passes_but_certifies_nothing(ort: str) -> None:
    result = call(ort, "--profile", "smoke", "--gpus", "none", "--only", "compute.challenge", "--json")
    document = json.loads(result.stdout)
    assert result.return_value == 0
    assert document["verdict"]["certified"] is False
    assert statuses(document) == {"compute.challenge": "pass"}


def test_own_profile_travels_into_the_container(ort: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    file.write_text(json.dumps({"title": "mine", "budget_s": 60, "required": ["compute.challenge", "host.shm"]}))
    result = call(ort, "--profile", "mine", "--profile-file", str(file), "--gpus", "none", "--json")
    document = json.loads(result.stdout)
    assert result.return_value == 0, document["verdict"]
    assert set(statuses(document)) == {"image.entrypoint", "compute.challenge", "host.shm"}
    file.write_text('{"required": ["compute.chalenge"]}')
    wrong = call(ort, "--profile", "mine", "--profile-file", str(file))
    assert "did you mean 'compute.challenge'" in str(wrong.exception)


def test_framework_that_is_not_in_the_image(ort: str) -> None:
    result = call(ort, "--profile", "smoke", "--gpus", "none", "--framework", "torch", "--json")
    document = json.loads(result.stdout)
    assert result.return_value in (1, 3)
    assert any("torch" in r for r in document["verdict"]["reasons"])


def test_here_without_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    result = call("--here", "--profile", "smoke", "--gpus", "none", "--json")
    document = json.loads(result.stdout)
    assert document["evidence"]["injection"] == "bare"
    assert document["evidence"]["host"]["authentic"]["ok"]
    assert result.return_value in (0, 3)
    gone = call("some/image")
    assert "no Docker Engine answers at tcp://127.0.0.1:1" in str(gone.exception)


@pytest.mark.parametrize("arguments", [[], ["x", "--here"], ["x", "--timeout", "-1"]])
def test_usage(arguments: list[str]) -> None:
    assert call(*arguments).exception is not None
