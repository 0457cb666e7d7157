"""Matrix files: every mistake is named with its line, and lists multiply out to stable cells."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from gpuimg.errors import BadInput
from gpuimg.knowledge.planning import Target
from gpuimg.matrix import expand, load_matrix
from gpuimg.matrix.load import parse_matrix
from gpuimg.pipeline import Job, Settings, read_job, refusal

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
        ("a: &a [*a]\n", "x.yaml:1: a value that contains itself"),
        ("? [a, b]\n: 1\n", "x.yaml:1: a key that is a list"),
        ("[" * 3000, "nested too deep"),
        (
            "a: &a ["
            + "x," * 9
            + "]\n"
            + "".join(f"{k}: &{k} [{f'*{j},' * 9}]\n" for j, k in zip("abcdefghij", "bcdefghijk", strict=True)),
            "aliases stand for more than",
        ),
        (HEAD + "images:\n  - {framework: torch, version: []}\n", "x.yaml:3: .*version is an empty list"),
        (HEAD + "images:\n  - null\n", "x.yaml:3: images #1 must be a mapping, not nothing"),
        (HEAD + "images:\n  - {framework: torch, version: 2024-01-01}\n", "must be text in quotes"),
        (HEAD + "registry: https://Example.com/x\n" + ROW, "x.yaml:2: registry .* is no HOST"),
        (HEAD + "registry: host/UPPER\n" + ROW, "x.yaml:2: registry .* is no HOST"),
        (HEAD + 'images:\n  - {framework: torch, version: "1", device: cpu, cuda: "12.4"}\n', "exclude each other"),
        (HEAD + 'images:\n  - {framework: torch, version: "1", device: cpu, only_with: gpu}\n', "exclude each other"),
        ("1: 2024-13-45\n", "not YAML: month"),
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


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("os: debain12", ":4: the distribution 'debain12' is not known.*did you mean 'debian12'"),
        ('python: "3.11.4"', ":4: python '3.11.4' is no minor version"),
    ],
)
def test_a_system_that_cannot_be_is_named_with_its_line(tmp_path: Path, row: str, message: str) -> None:
    path = write(tmp_path, HEAD + "images:\n  - framework: torch\n    version: '2.6.0'\n    " + row + "\n")
    text = path.read_text().replace("images:\n", "images:\n\n", 1)
    path.write_text(text)
    with pytest.raises(BadInput, match=message):
        expand(load_matrix(path), path)


def test_an_exclusion_that_matches_nothing_is_noted(tmp_path: Path) -> None:
    path = write(tmp_path, HEAD + ROW + 'exclude:\n  - {when: {version: "2.7"}, reason: none}\n')
    assert expand(load_matrix(path), path).notes == (f"{path}:5: this exclusion matches no cell",)


def plans_of(folder: Path, text: str, cards: tuple[Target, ...] = ()) -> Job:
    return read_job(Settings(write(folder, HEAD + "defaults: {os: debian12}\n" + text)), lambda: cards)


def test_rows_for_a_gpu_are_left_out_without_one_and_chosen_for_the_card_with_one(tmp_path: Path) -> None:
    text = ROW + "  - {framework: torch, version: latest, only_with: gpu}\n"
    without = plans_of(tmp_path, text)
    assert [p.cell.framework for p in without.plans] == ["torch"]
    assert [c.framework for c in without.with_gpu] == ["torch"]
    for card, driver, lowest in (("H200", "580.95.05", "9.0"), ("Tesla V100", "535.104.05", "7.0")):
        chosen = plans_of(tmp_path, text, (Target(card, driver),)).plans[-1]
        assert not refusal(chosen)
        assert chosen.verdict in ("fits", "fits-with-compat")
        assert chosen.cell.version == chosen.version != "latest"
        assert f"sm_{lowest.replace('.', '')}" in chosen.sm


def test_latest_is_a_final_version_under_its_own_name(tmp_path: Path) -> None:
    (plan,) = plans_of(tmp_path, "images:\n  - {framework: onnxruntime, version: latest, device: cpu}\n").plans
    assert plan.cell.id == f"onnxruntime{plan.version}-cpu-py311-debian12"
    assert not Version(plan.version).is_prerelease


def test_auto_cuda_is_what_the_drivers_of_the_targets_allow(tmp_path: Path) -> None:
    text = 'targets: [{gpu: A100, driver: "450.80.02"}]\nimages:\n  - {framework: torch, version: "2.6.0"}\n'
    (plan,) = plans_of(tmp_path, text).plans
    assert (plan.wheel_cuda, refusal(plan)) == ("11.8", [])


def test_rows_that_become_the_same_cell_are_refused(tmp_path: Path) -> None:
    text = 'images:\n  - {framework: torch, version: "2.6.0", cuda: "12.6"}\n  - {framework: torch, version: "2.6.0"}\n'
    with pytest.raises(BadInput, match=r":5: this becomes torch2\.6\.0-cu126-py311-debian12, as line 4 does"):
        plans_of(tmp_path, text)


@pytest.mark.parametrize(
    ("os", "python", "words"),
    [
        ("ubuntu22.04", "3.12", "os: ubuntu24.04"),
        ("debian12", "3.10", "os: ubuntu22.04"),
        ("rockylinux9", "3.9", "not on rockylinux9"),
    ],
)
def test_a_python_the_distribution_lacks_is_refused_with_where_it_is(
    tmp_path: Path, os: str, python: str, words: str
) -> None:
    text = f'images:\n  - {{framework: torch, version: "2.6.0", os: {os}, python: "{python}"}}\n'
    (plan,) = plans_of(tmp_path, text).plans
    finding = plan.findings[0]
    assert words in f"{finding.evidence} {finding.fix}"
    assert refusal(plan)
