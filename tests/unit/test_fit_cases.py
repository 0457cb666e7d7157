"""Configurations from practice and what the rules make of them, one a line in ``fit_cases.txt``."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpuimg.cli.fit import command

LINES = [
    tuple(part.strip() for part in line.split("|", 1))
    for line in (Path(__file__).parent / "fit_cases.txt").read_text(encoding="utf-8").splitlines()
    if line.strip() and not line.startswith("#")
]
EXIT = {"does-not-fit": 1, "unknown": 3}


@pytest.mark.parametrize(("verdict", "arguments"), LINES, ids=[line[1][:90] for line in LINES])
def test_verdict(verdict: str, arguments: str) -> None:
    result = CliRunner().invoke(command, [*shlex.split(arguments), "--json"], standalone_mode=False)
    assert result.exception is None, result.exception
    document = json.loads(result.stdout)
    assert document["verdict"] == verdict, json.dumps(document["findings"], ensure_ascii=False, indent=1)
    assert result.return_value == EXIT.get(verdict, 0)
    decisive = {f["verdict"] for f in document["findings"]}
    if verdict == "does-not-fit":
        assert "no" in decisive
    if verdict == "unknown":
        assert document["missing"]
    for finding in document["findings"]:
        assert finding["source"], finding
        assert finding["evidence"]


def test_enough_cases() -> None:
    assert len(LINES) > 250
    assert len({line[0] for line in LINES}) == 5
