"""Matrix files: every mistake is named with its line, and lists multiply out to stable cells."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuimg.errors import BadInput
from gpuimg.matrix import expand, load_matrix
from gpuimg.matrix.load import parse_matrix

HEAD = "schema: gpuimg/v1\n"
ROW = 'images:\n  - {framework: torch, version: "2.6.0"}\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "x.yaml:1: the file is empty"),
        ("[]", "x.yaml:1: a matrix file is a mapping"),
        ("a: [", "not YAML"),
        (HEAD + "images: []\n", "x.yaml:2: images"),
        (HEAD, "lacks the key 'images'"),
        (ROW, "lacks the key 'schema'"),
        ("schema: v2\n" + ROW, "x.yaml:1: schema is 'v2'; allowed: gpuimg/v1"),
        (HEAD + "defualts: {}\n" + ROW, "x.yaml:2: unknown key 'defualts'.*did you mean 'defaults'"),
        (HEAD + 'images:\n  - framework: pytorch\n    version: "2"\n', "x.yaml:3: .*'pytorch'.*did you mean 'torch'"),
        (HEAD + "images:\n  - framework: torch\n    version: 2.6\n", 'x.yaml:4: .*in quotes: "2.6"'),
        (HEAD + ROW + 'exclude:\n  - when: {cuda: "12.6"}\n', "x.yaml:5: .*lacks the key 'reason'"),
        (HEAD + ROW + ROW, "x.yaml:4: the key 'images' stands here and on line 2"),
        (HEAD + 'images:\n  - {framework: torch, version: "1", profile: train}\n', "'train'.*did you mean 'training'"),
    ],
)
def test_mistakes_are_named_with_their_line(text: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        parse_matrix(text, "x.yaml")


def test_all_mistakes_are_named_together() -> None:
    text = HEAD + "images:\n  - framwork: torch\n    version: 2.6\n"
    with pytest.raises(BadInput) as caught:
        parse_matrix(text, "x.yaml")
    assert len(caught.value.message.splitlines()) == 3


def test_missing_file_names_those_that_exist(tmp_path: Path) -> None:
    (tmp_path / "quickstart.yaml").write_text(HEAD + ROW)
    with pytest.raises(BadInput, match="no such file") as caught:
        load_matrix(tmp_path / "quikstart.yaml")
    assert "quickstart.yaml" in str(caught.value.hint)


def write(folder: Path, text: str) -> Path:
    path = folder / "m.yaml"
    path.write_text(text)
    return path


def test_lists_multiply_and_exclusions_keep_their_reason(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        HEAD
        + "defaults: {os: debian12}\n"
        + 'images:\n  - framework: torch\n    version: ["2.6.0", "2.5.1"]\n    cuda: ["12.4", "11.8"]\n'
        + "  - {framework: onnxruntime, version: '1.20.1', device: cpu}\n"
        + 'exclude:\n  - when: {version: "2.5.1", cuda: "11.8"}\n    reason: not needed\n',
    )
    found = expand(load_matrix(path), path)
    assert [cell.id for cell in found.cells] == [
        "torch2.6.0-cu124-py311-debian12",
        "torch2.6.0-cu118-py311-debian12",
        "torch2.5.1-cu124-py311-debian12",
        "onnxruntime1.20.1-cpu-py311-debian12",
    ]
    assert [(cell.id, reason) for cell, reason in found.excluded] == [("torch2.5.1-cu118-py311-debian12", "not needed")]
    assert found.cells[0].line == 4


def test_the_same_cell_twice_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, HEAD + ROW + '  - {framework: torch, version: "2.6.0"}\n')
    with pytest.raises(BadInput, match=r":4: cell torch2\.6\.0.* asked for twice \(first on line 3\)"):
        expand(load_matrix(path), path)


def test_excluding_everything_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, HEAD + ROW + "exclude:\n  - {when: {framework: torch}, reason: spare}\n")
    with pytest.raises(BadInput, match="nothing to build"):
        expand(load_matrix(path), path)


@given(st.text())
def test_any_text_gives_a_matrix_or_one_clear_error(text: str) -> None:
    # the only key that a matrix cannot do without is never made up by chance
    with pytest.raises(BadInput, match=r"^x\.yaml"):
        parse_matrix(text, "x.yaml")
