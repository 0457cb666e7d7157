"""``gpuimg kb``: what it prints, its JSON, and how it says that something is not known."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gpuimg.cli.kb import command
from gpuimg.errors import BadInput, CannotTell
from gpuimg.harvest import update
from gpuimg.knowledge.base import DATA


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(command, arguments)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_show_prints_builds_and_their_sources() -> None:
    text = run("show", "torch", "2.5.1").output
    assert text.startswith("torch: ")
    assert "cu118" in text
    assert "pypi:torch-2.5.1" in text


def test_show_as_json() -> None:
    document = json.loads(run("show", "torch", "2.5.1", "--machine", "x86_64", "--json").output)
    default = [b for b in document["builds"] if b["default"]]
    assert [b["wheel_cuda"] for b in default] == ["12.4"]
    assert document["date"]


@pytest.mark.parametrize(
    ("name", "kind", "field", "value"),
    [
        ("RTX 4090", "gpu", "compute_capability", "8.9"),
        ("ubuntu22.04", "os", "glibc", "2.35"),
        ("nvidia/cuda:12.4.1-cudnn-runtime-ubuntu22.04", "base", "cudnn", "9.1.0.70"),
        ("nvcr.io/nvidia/pytorch:24.01-py3", "image", "base_cuda", "12.3"),
    ],
)
def test_show_knows_cards_systems_and_images(name: str, kind: str, field: str, value: str) -> None:
    assert json.loads(run("show", name, "--json").output)[kind][field] == value


def test_what_is_not_known_is_said_with_the_nearest() -> None:
    with pytest.raises(CannotTell, match="newest known") as caught:
        run("show", "torch", "2.55")
    assert caught.value.hint is not None
    with pytest.raises(CannotTell) as caught:
        run("show", "tensorflo")
    assert caught.value.hint == "did you mean tensorflow?"


def test_sources_and_conflicts() -> None:
    document = json.loads(run("sources", "--json").output)
    assert document["sources"]
    assert len(document["conflicts"]) >= 32
    assert document["wheel_cuda_obtained"]["embedded"] > 100
    assert "who is right" not in run("sources").output
    assert "build_info.py" in run("sources", "--conflicts").output


def test_diff_against_a_file(tmp_path: Path) -> None:
    builds = update.read_builds(DATA / "pypi.json")
    builds["torch"] = [{**r, "wheel_cuda": "99.9"} if r["version"] == "2.5.1" else r for r in builds["torch"]]
    update.write(tmp_path / "pypi.json", "2030-01-01", builds)
    document = json.loads(run("diff", str(tmp_path / "pypi.json"), "--json").output)
    assert {c["key"] for c in document["changes"]} == {"2.5.1 x86_64", "2.5.1 aarch64"}
    assert "wheel_cuda: 12.4 → 99.9" in run("diff", str(tmp_path / "pypi.json"), "--only", "torch").output
    (tmp_path / "other.json").write_text("[]")
    with pytest.raises(BadInput):
        run("diff", str(tmp_path / "other.json"))


def test_offline_update_without_a_cache_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    from gpuimg.errors import EnvironmentFault

    with pytest.raises(EnvironmentFault, match="nothing could be read"):
        run("update", "--offline", "--out", str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()
