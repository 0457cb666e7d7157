"""scan: what a project needs and what will not survive the move to Linux."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuimg.cli.scan import command
from gpuimg.errors import BadInput
from gpuimg.knowledge import load
from gpuimg.project.moving import Scan, scan
from gpuimg.project.moving.code import read_code


def make(folder: Path, files: dict[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def rules(found: Scan, severity: str) -> set[str]:
    return {f.rule for f in found.findings if f.severity == severity}


def test_frameworks_versions_and_wheel_cuda(tmp_path: Path) -> None:
    make(
        tmp_path,
        {
            "requirements.txt": "torch==2.5.1\ntransformers\n",
            "Dockerfile": "FROM tensorflow/tensorflow:2.15.0-gpu\nRUN pip install onnxruntime-gpu==1.20.1\n",
            "train.py": "import torch\nimport jax\n",
            "pyproject.toml": '[project]\nname="x"\nrequires-python=">=3.10"\n',
        },
    )
    found = scan(tmp_path, load())
    by_name = {f.name: f for f in found.frameworks}
    assert (by_name["torch"].version, by_name["torch"].wheel_cuda) == ("2.5.1", "12.4")
    assert by_name["jax"].how == "import"
    assert by_name["tensorflow"].how == "image"
    assert by_name["onnxruntime-gpu"].version == "1.20.1"
    assert found.python == ">=3.10"
    assert found.verdict == "ready"


@pytest.mark.parametrize(
    ("source", "rule", "severity"),
    [
        ("import winreg\n", "windows-module", "error"),
        ("import sys\nif sys.platform == 'win32':\n    import winreg\n", "windows-module", "note"),
        ("try:\n    import win32api\nexcept ImportError:\n    win32api = None\n", "windows-module", "note"),
        ("import os\nos.startfile('a')\n", "windows-call", "error"),
        ("import os\nos.system('cls')\n", "windows-call", "warning"),
        ("import subprocess\nsubprocess.run(['taskkill', '/F'])\n", "windows-call", "error"),
        ("f = open('C:\\\\data\\\\a.txt')\n", "windows-path", "error"),
        ("ROOT = r'D:\\data\\images'\n", "windows-path", "warning"),
        ("p = open('data\\\\train\\\\a.txt')\n", "backslash-path", "error"),
        ("p = '/Users/li/data/x'\n", "home-path", "warning"),
        ("import torch\nd = torch.device('cuda:3')\n", "device-count", "warning"),
        ("import torch\nd = torch.device('mps')\n", "mps", "warning"),
        ("from PIL import ImageFont\nf = ImageFont.truetype('simhei.ttf', 12)\n", "font", "error"),
        ("import cv2\ncv2.imshow('a', b)\n", "gui", "warning"),
        ("import torch_directml\n", "windows-module", "error"),
        ("f = open('a.txt')\n", "open-encoding", "note"),
        ("from torch.utils.data import DataLoader\nDataLoader(d, num_workers=0)\n", "num-workers", "note"),
    ],
)
def test_code(source: str, rule: str, severity: str) -> None:
    assert (rule, severity) in {(f.rule, f.severity) for f in read_code(source, "x.py").findings}


@pytest.mark.parametrize(
    "source",
    [
        "import re\nre.compile('\\\\d+\\\\w+')\n", "x = 'a\\\\nb'\n", "url = 'https://example.org/a'\n", "open('a/b.txt', encoding='utf-8')\n",
        "import torch\nd = 'cuda:0'\n", "'''C:\\\\docs in a docstring'''\n", "open('a.bin', 'rb')\n", "t = '12:30'\n",
    ],
)  # fmt: skip
def test_sound_code(source: str) -> None:
    assert [f for f in read_code(source, "x.py").findings if f.severity != "note"] == []


def test_files_that_break(tmp_path: Path) -> None:
    make(
        tmp_path,
        {
            "run.sh": b"#!/bin/bash\r\necho hi\r\n",
            "start.bat": "python x.py\r\n",
            "Utils.py": "x = 1\n",
            "main.py": "from utils import x\n",
            "ops.cp310-win_amd64.pyd": b"MZ",
            "latin.py": "# caf\xe9\n".encode("latin-1"),
            "requirements.txt": "pywin32==306\ntorch==2.5.1\n",
            "environment.yml": "dependencies:\n  - vs2015_runtime=14.27=h5e58377_2\n  - python=3.10\n",
        },
    )
    found = scan(tmp_path, load())
    assert found.verdict == "problems"
    assert rules(found, "error") >= {
        "crlf-shebang", "import-case", "windows-binary", "source-encoding", "windows-package", "conda-platform",
    }  # fmt: skip
    assert "windows-script" in rules(found, "warning")


def test_names_that_differ_in_case(tmp_path: Path) -> None:
    make(tmp_path, {"Model.py": "a = 1\n", "model.py": "a = 1\n"})
    assert "case-clash" in rules(scan(tmp_path, load()), "warning")


def test_markers_keep_windows_packages_quiet(tmp_path: Path) -> None:
    make(tmp_path, {"requirements.txt": "pywin32==306 ; sys_platform == 'win32'\n"})
    assert scan(tmp_path, load()).verdict == "ready"


def test_notebooks_are_read(tmp_path: Path) -> None:
    cells = [{"cell_type": "code", "source": ["!pip install x\n", "import torch\n", "import winreg\n"]}]
    make(tmp_path, {"a.ipynb": json.dumps({"cells": cells})})
    found = scan(tmp_path, load())
    assert "windows-module" in rules(found, "error")
    assert found.findings[0].file == "a.ipynb#cell1"


def test_environments_are_left_out(tmp_path: Path) -> None:
    make(tmp_path, {"my_env/pyvenv.cfg": "", "my_env/lib/x.py": "import winreg\n", "a.py": "x = 1\n"})
    assert scan(tmp_path, load()).verdict == "ready"


def test_the_command(tmp_path: Path) -> None:
    result = CliRunner().invoke(command, [str(tmp_path), "--json"])
    assert result.exit_code == 3
    assert json.loads(result.stdout)["verdict"] == "unknown"
    make(tmp_path, {"a.py": "import winreg\n"})
    assert CliRunner().invoke(command, [str(tmp_path)]).exit_code == 1
    with pytest.raises(BadInput):
        scan(tmp_path / "none", load())


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=200))
def test_any_source_is_read(text: str) -> None:
    read_code(text, "x.py")
