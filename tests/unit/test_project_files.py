"""conda, pyproject, lock files, setup files; the kind of a file; nothing but BadInput for garbage."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuimg.errors import BadInput
from gpuimg.project import read_needs
from gpuimg.project.conda import parse_environment
from gpuimg.project.detect import Kind, kind_of
from gpuimg.project.entries import conda_requirement
from gpuimg.project.locks import parse_pipfile, parse_pipfile_lock, parse_toml_lock
from gpuimg.project.pyproject import caret, parse_pyproject
from gpuimg.project.readfile import PARSERS, parse_package_file
from gpuimg.project.setup_files import parse_setup_cfg, parse_setup_py


def test_conda_environment() -> None:
    text = """name: x
channels:
  - pytorch
  - nvidia
dependencies:
  - python=3.10
  - pytorch=2.1.0=py3.10_cuda12.1_cudnn8.9.2_0
  - conda-forge::numpy>=1.24,<2
  - pip:
    - --extra-index-url https://download.pytorch.org/whl/cu121
    - xformers==0.0.22
"""
    found = parse_environment(text, "e.yml")
    assert found.python == "3.10"
    assert [c for c, _ in found.channels] == ["pytorch", "nvidia", "conda-forge"]
    torch = next(r for r in found.conda if r.name == "pytorch")
    assert (torch.specifier, torch.local, torch.line) == ("==2.1.0", "cu121", 7)
    assert [(r.name, r.line) for r in found.requirements] == [("xformers", 11)]
    assert found.indexes[0].url.endswith("cu121")


@pytest.mark.parametrize(
    ("text", "specifier", "local"),
    [
        ("pytorch=2.0", "==2.0.*", None),
        ("pytorch==2.0.1", "==2.0.1", None),
        ("pytorch 2.0.*", "==2.0.*", None),
        ("pytorch >=2.0,<2.2", "<2.2,>=2.0", None),
        ("pytorch=2.4.1=*cuda118*", "==2.4.1", "cu118"),
        ("pytorch=2.4.1=cpu_generic_py310", "==2.4.1", "cpu"),
        ("numpy", "", None),
    ],
)
def test_conda_specifications(text: str, specifier: str, local: str | None) -> None:
    made = conda_requirement(text, file=None, line=None)
    assert made is not None
    assert (made.specifier, made.local) == (specifier, local)


def test_pyproject_of_all_tools() -> None:
    text = """[project]
name = "x"
requires-python = ">=3.10"
dependencies = ["torch==2.5.1", "numpy<2"]
[project.optional-dependencies]
gpu = ["flash-attn==2.7.4.post1"]
[dependency-groups]
dev = ["pytest", {include-group = "x"}]
[tool.uv.sources]
torch = { index = "pytorch-cu124" }
[[tool.uv.index]]
name = "pytorch-cu124"
url = "https://download.pytorch.org/whl/cu124"
explicit = true
[tool.poetry.dependencies]
python = "^3.10"
transformers = "^4.40"
accelerate = {version = "~0.30", extras = ["test"]}
"""
    found = parse_pyproject(text, "pyproject.toml")
    names = {r.name: r for r in found.requirements}
    assert found.python == ">=3.10"
    assert names["torch"].line == 4
    assert names["transformers"].specifier == "<5,>=4.40"
    assert names["accelerate"].specifier == "<0.31,>=0.30"
    assert {"flash-attn", "pytest"} <= set(names)
    assert found.indexes[0].packages == ("torch",)


@pytest.mark.parametrize(
    ("written", "meant"),
    [("^2.1", ">=2.1,<3"), ("^0.3.2", ">=0.3.2,<0.4"), ("~1.2", ">=1.2,<1.3"), ("2.5.1", "==2.5.1"), ("*", ""), (">=2,<3", ">=2,<3")],
)  # fmt: skip
def test_poetry_versions(written: str, meant: str) -> None:
    assert caret(written) == meant


def test_lock_files() -> None:
    text = """version = 1
requires-python = ">=3.11"
[[package]]
name = "torch"
version = "2.6.0+cu124"
source = { registry = "https://download.pytorch.org/whl/cu124" }
[[package]]
name = "me"
version = "0.1"
source = { editable = "." }
"""
    found = parse_toml_lock(text, "uv.lock")
    assert [(r.name, r.specifier, r.local) for r in found.requirements] == [("torch", "==2.6.0", "cu124")]
    assert found.locked
    assert found.indexes[0].url.endswith("cu124")
    pipfile = parse_pipfile(
        '[packages]\ntorch = "==2.5.1"\nnumpy = "*"\n[requires]\npython_version = "3.11"\n', "Pipfile"
    )
    assert pipfile.python == "3.11"
    assert {r.name: r.specifier for r in pipfile.requirements} == {"torch": "==2.5.1", "numpy": ""}
    lock = parse_pipfile_lock(json.dumps({"default": {"torch": {"version": "==2.5.1"}}}), "Pipfile.lock")
    assert [r.specifier for r in lock.requirements] == ["==2.5.1"]


def test_setup_files() -> None:
    cfg = parse_setup_cfg(
        "[options]\npython_requires = >=3.8\ninstall_requires =\n    torch>=2.0\n    numpy<2 # old\n", "setup.cfg"
    )
    assert {r.name: r.specifier for r in cfg.requirements} == {"torch": ">=2.0", "numpy": "<2"}
    source = 'from setuptools import setup\nREQ = ["torch==2.1.0"]\nsetup(install_requires=REQ + ["numpy"], python_requires="==3.10.*")\n'
    found = parse_setup_py(source, "setup.py")
    assert [(r.name, r.line) for r in found.requirements] == [("torch", 2), ("numpy", 3)]
    assert found.python == "3.10"


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("Dockerfile", "", "dockerfile"), ("x.Dockerfile", "", "dockerfile"), ("Dockerfile.gpu", "", "dockerfile"),
        ("ABI.true.requirements.txt", "", "requirements"), ("requirements-dev.txt", "", "requirements"),
        ("base.txt", "torch==2.5.1\nnumpy\n", "requirements"), ("a.yml", "name: x\ndependencies: [numpy]\n", "conda"),
        ("docker-compose.yml", "services: {}\n", "compose"), ("env.yaml", "services:\n  a:\n    image: x\n", "compose"),
        ("m.yaml", "schema: gpuimg/v1\nimages: []\n", "matrix"), ("uv.lock", "", "toml-lock"), ("pyproject.toml", "", "pyproject"),
        ("build", "FROM ubuntu:22.04\nRUN true\n", "dockerfile"), ("x.py", "from torch import nn\n", "unknown"),
        ("notes.txt", "This is a text about things.\nIt goes on like so.\n", "unknown"),
    ],
)  # fmt: skip
def test_kinds(name: str, text: str, kind: Kind) -> None:
    assert kind_of(name, text) == kind


def test_union_of_files(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("torch==2.5.1\n", encoding="utf-8")
    (tmp_path / "environment.yml").write_text(
        "channels: [pytorch]\ndependencies: [python=3.10, pytorch=2.4]\n", encoding="utf-8"
    )
    (tmp_path / "Dockerfile").write_text(
        "FROM nvidia/cuda:12.4.1-base-ubuntu22.04\nENV A=1\nCOPY requirements.txt /tmp/\nRUN pip install vllm -r /tmp/requirements.txt\n",
        encoding="utf-8",
    )
    needs = read_needs([tmp_path / "environment.yml"], tmp_path / "Dockerfile")
    assert {r.name for r in needs.requirements} == {"vllm", "torch"}
    assert needs.python == "3.10"
    assert needs.base == "nvidia/cuda:12.4.1-base-ubuntu22.04"
    assert needs.env == (("A", "1"),)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pyproject.toml", "[project\n"), ("environment.yml", "a: [1\n"), ("environment.yml", "- a\n- b\n"), ("Pipfile.lock", "{"),
        ("setup.py", "def (:\n"), ("Dockerfile", "RUN x\n"), ("Dockerfile", "FORM x\n"), ("compose.yaml", "services: {a: {image: x}}\n"),
    ],
)  # fmt: skip
def test_bad_input_names_the_file(name: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    with pytest.raises(BadInput, match=name.replace(".", r"\.")):
        read_needs([path])


GARBAGE = st.one_of(
    st.text(max_size=200),
    st.text(alphabet="[]{}:=-\n \"'#abcp1.,<>", max_size=120),
)


@settings(max_examples=150, deadline=None)
@given(GARBAGE)
def test_parsers_raise_nothing_but_bad_input(text: str) -> None:
    for kind in [*PARSERS, "conda"]:
        with contextlib.suppress(BadInput):
            parse_package_file(text, "x", kind)  # type: ignore[arg-type]
