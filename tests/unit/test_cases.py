"""Every case of tests/cases through the command line in this process, judged by the runner's own ``judge``."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import os
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner

from gpuimg.cli import cli
from gpuimg.errors import GpuimgError

CASES = Path(__file__).parent.parent / "cases"
SPECS: list[dict[str, Any]] = [
    json.loads(p.read_text(encoding="utf-8")) for p in sorted((CASES / "specs").glob("*.json"))
]
RUNS = [(spec, number) for spec in SPECS for number in range(len(spec["runs"]))]
FITS = {"fits", "fits-with-compat", "fits-via-ptx"}

DISPUTED: dict[str, str] = {}
"""Case id → the primary source that shows its expectation to be wrong. Such a case is left failing, never bent to."""


def _runner() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("cases_run", str(CASES / "run"))
    spec = importlib.util.spec_from_loader("cases_run", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


JUDGE = _runner().judge


def _answer(argv: list[str], stdin: str | None) -> tuple[int, str, str]:
    """(exit, stdout, stderr) as a user would see them: errors become the JSON document and exit code of ``main``."""
    result = CliRunner().invoke(cli, [*argv, "--json"], input=stdin, standalone_mode=False, prog_name="gpuimg")
    if isinstance(result.exception, GpuimgError):
        error = result.exception
        return error.exit_code, json.dumps({"verdict": "error", "error": error.message}), error.message
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    code = result.return_value if isinstance(result.return_value, int) else result.exit_code
    return code, result.stdout, result.stderr


@pytest.mark.parametrize(("spec", "number"), RUNS, ids=[f"{s['id']}-{n}" for s, n in RUNS])
def test_case(spec: dict[str, Any], number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if spec["id"] in DISPUTED:
        pytest.xfail(DISPUTED[spec["id"]])
    monkeypatch.chdir(CASES / "inputs")
    run = spec["runs"][number]
    code, out, err = _answer(run["argv"], run.get("stdin"))
    complaints, said = JUDGE(run, code, out, err)
    want = set(run["expect"].get("verdict") or [])
    assert not (want == {"does-not-fit"} and said in FITS), f"false fit: {spec['why']}"
    assert complaints == [], f"{' '.join(run['argv'])}: {spec.get('why')}"


def test_the_runner_can_be_executed() -> None:
    assert os.access(CASES / "run", os.X_OK)
    assert len(RUNS) > 80
