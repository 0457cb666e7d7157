"""The whole suite on a real GPU, outside any container. Needs an NVIDIA GPU and a framework in this Python."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpuimg.suite.document import Document, read_document
from gpuimg.suite.environment import frameworks_here
from gpuimg.suite.pack import build_zipapp

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.slow,
    pytest.mark.skipif(not os.path.exists("/dev/nvidia0"), reason="no NVIDIA GPU on this machine"),
]


@pytest.fixture(scope="module", params=[f for f in ("torch", "jax", "cupy") if f in frameworks_here()] or [None])
def document(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Document:
    if request.param is None:
        pytest.skip("no framework in this Python")
    folder = tmp_path_factory.mktemp("suite")
    suite, out = folder / "suite.pyz", folder / "evidence.jsonl"
    build_zipapp(suite)
    command = [sys.executable, str(suite), "--profile", "full", "--framework", request.param, "--nonce", "n"]
    subprocess.run([*command, "--out", str(out)], timeout=580, check=False)
    return read_document(Path(out).read_text(encoding="utf-8"), "n")


def test_every_required_check_passes(document: Document) -> None:
    bad: list[dict[str, Any]] = [c for c in document.checks if c["required"] and c["status"] in ("fail", "error")]
    assert not bad, json.dumps(bad, indent=1)
    assert document.environment["gpus"]


def test_it_keeps_its_budget(document: Document) -> None:
    assert document.summary["seconds"] <= 300
    assert document.summary["overhead_seconds"] <= 2.0


def test_every_skip_has_its_reason(document: Document) -> None:
    assert all(c["reason"] for c in document.checks if c["status"] == "skip")
