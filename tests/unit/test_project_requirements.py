"""requirements.txt as pip reads it."""

from __future__ import annotations

import codecs
import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuimg.errors import BadInput
from gpuimg.project import read_needs
from gpuimg.project.entries import pip_requirement
from gpuimg.project.requirements import parse_requirements
from gpuimg.project.text import decode


def test_options_includes_and_constraints(tmp_path: Path) -> None:
    (tmp_path / "base.txt").write_text("numpy<2\n-c pins.txt\n", encoding="utf-8")
    (tmp_path / "pins.txt").write_text("torch==2.5.1\n", encoding="utf-8")
    main = tmp_path / "requirements.txt"
    main.write_text(
        "# comment\n-r base.txt\n--extra-index-url=https://download.pytorch.org/whl/cu124\n"
        "-f https://x.example/links.html  # more\ntorch  # pinned elsewhere\n--pre\n",
        encoding="utf-8",
    )
    needs = read_needs([main])
    assert {r.name: r.specifier for r in needs.requirements} == {"numpy": "<2", "torch": "==2.5.1"}
    assert needs.index_urls == ("https://download.pytorch.org/whl/cu124", "https://x.example/links.html")
    assert len(needs.files) == 3


def test_lines_continuations_hashes_and_markers() -> None:
    text = (
        "torch==2.5.1 \\\n    --hash=sha256:abc \\\n    --hash=sha256:def\n\nnumpy==1.26.4 ; python_version < '3.13'\n"
    )
    found = parse_requirements(text, "r.txt")
    assert [(r.name, r.specifier, r.line) for r in found.requirements] == [
        ("torch", "==2.5.1", 1),
        ("numpy", "==1.26.4", 5),
    ]
    assert found.requirements[1].marker == 'python_version < "3.13"'
    assert not found.problems


def test_an_include_of_itself_ends(tmp_path: Path) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text("-r requirements.txt\ntorch==2.5.1\n", encoding="utf-8")
    assert [r.name for r in read_needs([path]).requirements] == ["torch"]


@pytest.mark.parametrize(
    ("text", "name", "specifier", "local", "extras"),
    [
        ("torch==2.5.1+cu124", "torch", "==2.5.1", "cu124", ()),
        ("jax[cuda12]>=0.4.30,<0.5", "jax", "<0.5,>=0.4.30", None, ("cuda12",)),
        ("Flash_Attn===2.7.0", "flash-attn", "==2.7.0", None, ()),
        ("https://x/torch-2.1.0%2Bcu118-cp310-cp310-linux_x86_64.whl", "torch", "==2.1.0", "cu118", ()),
        ("flash_attn @ https://x/flash_attn-2.5.5+cu118torch2.2cxx11abiFALSE-cp38-cp38-linux_x86_64.whl", "flash-attn", "==2.5.5", "cu118torch2.2cxx11abifalse", ()),
        ("git+https://github.com/NVIDIA/apex.git@master#egg=apex", "apex", "", None, ()),
        ("git+https://github.com/huggingface/transformers", "transformers", "", None, ()),
        ("detectron2 @ git+https://github.com/facebookresearch/detectron2", "detectron2", "", None, ()),
    ],
)  # fmt: skip
def test_forms(text: str, name: str, specifier: str, local: str | None, extras: tuple[str, ...]) -> None:
    made = pip_requirement(text, file="r.txt", line=1)
    assert made is not None
    assert (made.name, made.specifier, made.local, made.extras) == (name, specifier, local, extras)


@pytest.mark.parametrize(
    ("line", "reason"),
    [("numpy=1.26", "conda"), ("pip install torch", "command"), ("torch 2.1", "=="), ("<<<<<<< HEAD", "merge")],
)
def test_what_pip_refuses_is_a_problem_with_its_line(line: str, reason: str) -> None:
    found = parse_requirements(f"requests\n{line}\n", "r.txt")
    assert [(p.line, reason in p.reason) for p in found.problems] == [(2, True)]


@pytest.mark.parametrize("codec", ["utf-8", "utf-8-sig", "utf-16", "gbk"])
def test_encodings(codec: str, tmp_path: Path) -> None:
    path = tmp_path / "requirements.txt"
    path.write_bytes("# 依赖\r\ntorch==2.5.1\r\n".encode(codec))
    assert [(r.name, r.line) for r in read_needs([path]).requirements] == [("torch", 2)]


def test_binary_and_missing_files_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "requirements.txt"
    path.write_bytes(b"torch\n\x00\x01\x02")
    with pytest.raises(BadInput, match=r"requirements\.txt:2: is binary"):
        read_needs([path])
    with pytest.raises(BadInput, match="cannot be read"):
        read_needs([tmp_path / "none.txt"])
    with pytest.raises(BadInput, match="is a folder"):
        read_needs([tmp_path])
    with pytest.raises(BadInput):
        decode(codecs.BOM_UTF16_LE + b"\x00\xd8\x00", "x")


@given(st.text(max_size=300))
def test_any_text_is_read_or_refused(text: str) -> None:
    parse_requirements(text, "r.txt")


@given(st.binary(max_size=200))
def test_any_bytes_are_decoded_or_refused(data: bytes) -> None:
    with contextlib.suppress(BadInput):
        decode(data, "x")
