"""Rules of the linter one by one: severity, place, fix; nothing but BadInput for garbage; options."""

from __future__ import annotations

import datetime
import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuimg.cli.lint import command
from gpuimg.errors import BadInput, CannotTell
from gpuimg.knowledge import load
from gpuimg.lint import Options, lint_text
from gpuimg.lint.docker_base import image_tag
from gpuimg.nouns import LintFinding

TODAY = datetime.date(2026, 12, 1)


def run(text: str, file: str = "Dockerfile", **options: object) -> tuple[LintFinding, ...]:
    return lint_text(text, file, load(), Options(**options), today=TODAY)  # type: ignore[arg-type]


def rules(found: tuple[LintFinding, ...], severity: str | None = None) -> set[str]:
    return {f.rule for f in found if severity in {None, f.severity}}


def one(found: tuple[LintFinding, ...], rule: str) -> LintFinding:
    return next(f for f in found if f.rule == rule)


def test_a_deleted_tag_names_the_nearest_one() -> None:
    found = one(run("FROM nvidia/cuda:11.2.1-cudnn8-devel-ubuntu20.04\n"), "tag-deleted")
    assert found.severity == "error"
    assert found.line == 1
    assert "nvidia/cuda:11.2.2-cudnn8-devel-ubuntu20.04" in found.fix


def test_a_tag_newer_than_the_data_is_no_error() -> None:
    found = run("FROM nvidia/cuda:19.9.9-base-ubuntu24.04\n")
    assert one(found, "tag-unknown").severity == "warning"


def test_the_base_does_not_change_the_cuda_of_the_wheel() -> None:
    found = run(
        "FROM nvidia/cuda:12.1.1-runtime-ubuntu22.04\nRUN apt-get update && apt-get install -y python3-pip\nRUN pip3 install torch==2.5.1\n"
    )
    message = one(found, "second-cuda").message
    assert "12.4 (wheel_cuda)" in message
    assert "12.1 (base_cuda" in message
    assert "base" in one(found, "second-cuda").fix


def test_the_shadowing_path_is_named() -> None:
    found = run(
        "FROM nvidia/cuda:11.7.1-cudnn8-runtime-ubuntu20.04\nENV LD_LIBRARY_PATH=/usr/lib/x86_64-linux-gnu\n"
        "RUN apt-get update && apt-get install -y python3-pip && pip3 install torch==1.13.0\n"
    )
    assert "LD_LIBRARY_PATH" in one(found, "second-cudnn").message


def test_conditional_installs_do_not_contradict_each_other() -> None:
    text = 'FROM python:3.11-slim\nARG GPU=1\nRUN if [ "$GPU" = 1 ]; then pip install torch==2.5.1; else pip install torch==2.4.0 torchvision==0.20.1; fi\n'
    assert rules(run(text), "error") == set()


def test_two_virtual_environments_are_two_environments() -> None:
    text = (
        "FROM python:3.11-slim\nRUN python -m venv /a && python -m venv /b\n"
        "RUN /a/bin/pip install onnxruntime==1.19.2\nRUN /b/bin/pip install onnxruntime-gpu==1.19.2\n"
    )
    assert "two-of-a-kind" not in rules(run(text))


def test_files_of_the_build_context_are_read(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("torch==2.5.1\ntorchvision==0.19.0\n", encoding="utf-8")
    text = "FROM python:3.11-slim\nCOPY requirements.txt /tmp/\nRUN pip install -r /tmp/requirements.txt\n"
    found = lint_text(text, "Dockerfile", load(), Options(), folder=tmp_path, today=TODAY)
    pair = one(found, "pair")
    assert pair.severity == "error"
    assert pair.file.endswith("requirements.txt")
    assert pair.line == 2


def test_an_extension_must_match_the_torch_of_the_base() -> None:
    wheel = "https://x/flash_attn-2.7.4+cu12torch2.6cxx11abiFALSE-cp311-cp311-linux_x86_64.whl"
    found = run(f"FROM pytorch/pytorch:2.5.1-cuda12.4-cudnn9-devel\nRUN pip install {wheel}\n")
    assert "extension-abi" in rules(found, "error")


def test_the_python_option_decides() -> None:
    assert rules(run("torch==2.1.0\n", "requirements.txt", python="3.12"), "error") == {"python-version"}
    assert rules(run("torch==2.1.0\n", "requirements.txt", python="3.10"), "error") == set()


def test_the_os_option_decides_about_glibc() -> None:
    found = run("torch==2.7.1\n", "requirements.txt", os="ubuntu18.04", python="3.11")
    assert "glibc" in rules(found, "error")


def test_a_card_is_judged_as_fit_does() -> None:
    found = run("torch==2.5.1\n", "requirements.txt", gpus=("RTX 5090",), driver="570.124.06")
    assert any("sm_120" in f.message or "12.0" in f.message for f in found if f.severity == "error")
    assert rules(run("torch==2.7.1\n", "requirements.txt", gpus=("RTX 4090",), driver="570.124.06"), "error") == set()


def test_unpinned_beside_a_pin_names_both_ways() -> None:
    found = one(run("vllm\ntorch==2.4.0\n", "requirements.txt"), "unpinned-beside-pin")
    assert found.severity == "warning"
    assert "vllm==" in found.fix


def test_pins_that_meet_on_one_python() -> None:
    found = one(run("numpy==1.23.4\nscipy==1.5.3\nnumba==0.48.0\n", "requirements.txt"), "python-version")
    assert found.severity == "warning"
    assert "Python 3.8" in found.message


def test_shared_memory_and_runtime_of_compose() -> None:
    text = """services:
  a:
    image: pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime
    deploy: {resources: {reservations: {devices: [{driver: nvidia, count: 1, capabilities: [gpu]}]}}}
"""
    found = run(text, "compose.yaml")
    assert rules(found, "error") == set()
    assert one(found, "compose-shm").severity == "warning"
    assert "compose-shm" not in rules(run(text.replace("    deploy", "    ipc: host\n    deploy"), "compose.yaml"))


def test_merge_keys_of_compose_are_followed() -> None:
    text = """x-g: &g {deploy: {resources: {reservations: {devices: [{driver: nvidia, count: all, capabilities: [gpu]}]}}}}
services:
  a: {<<: *g, image: "vllm/vllm-openai:v0.6.3", ipc: host}
"""
    assert rules(run(text, "compose.yaml"), "error") == set()


def test_a_broken_matrix_is_a_finding_with_its_line() -> None:
    found = run("schema: gpuimg/v1\nimages:\n  - framwork: torch\n", "m.yaml")
    assert rules(found, "error") == {"matrix"}
    assert found[0].line == 3


def test_a_sound_matrix_has_no_finding() -> None:
    folder = Path(__file__).parents[2] / "matrices"
    for path in sorted(folder.glob("*.yaml")):
        assert run(path.read_text(encoding="utf-8"), path.name) == ()


def test_notes_never_decide() -> None:
    found = run(
        "FROM ubuntu:22.04\nRUN apt-get update && apt-get install -y python3-pip && pip3 install torch==2.5.1\nCMD python3 x.py\n"
    )
    assert rules(found, "error") == set()
    assert {"pip-cache", "apt-lists", "root-user", "locale"} <= rules(found, "note")


@pytest.mark.parametrize("text", ["", "   \n", "just some words about nothing in particular\nand more of them here\n"])
def test_what_is_no_file_of_any_kind_is_bad_input(text: str) -> None:
    with pytest.raises(BadInput):
        run(text, "notes.md")


def test_the_command(tmp_path: Path) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text("torch==1.13.1\ntorchvision==0.13.0\n", encoding="utf-8")
    result = CliRunner().invoke(command, [str(path), "--json"])
    document = json.loads(result.stdout)
    assert result.exit_code == 1
    assert document["verdict"] == "problems"
    assert set(document["findings"][0]) == {"rule", "severity", "file", "line", "message", "fix", "source"}
    shown = CliRunner().invoke(command, [str(path)])
    assert shown.stdout.startswith("PROBLEMS: ")
    path.write_text("requests\n", encoding="utf-8")
    assert CliRunner().invoke(command, [str(path)]).stdout == "OK\n"


KINDS = ["dockerfile", "compose", "conda", "requirements", "pyproject", "toml-lock"]
WORDS = st.sampled_from(
    ["FROM", "nvidia/cuda:12.4.1-devel-ubuntu22.04", "RUN", "pip install", "torch==2.5.1", "torchvision", "+cu124", "\n", " ", "ENV",
     "LD_LIBRARY_PATH=", "-r", "x.txt", "&&", "if", "fi", "services:", "\n  ", "image:", "deploy:", "- ", "pytorch=2.1", "dependencies:",
     "flash-attn", "numpy<2", "--index-url", "https://download.pytorch.org/whl/cu121", "${A:-b}", "\\\n", "<<EOF", "EOF", "[", "]", "=", "A=1; ", "nvidia-smi", "FROM nvidia/cuda:12.4.1-devel-ubuntu22.04\nRUN A=1; pip install torch", "export B=2 &&"]
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.lists(WORDS, max_size=25).map("".join), st.sampled_from(KINDS))
def test_any_file_is_judged_or_refused(text: str, kind: str) -> None:
    try:
        found = lint_text(text, "x", load(), Options(), kind=kind, today=TODAY)  # type: ignore[arg-type]
    except BadInput:
        return
    assert all(f.message and f.fix and f.source and f.severity in {"error", "warning", "note"} for f in found)


def test_extras_are_alternatives() -> None:
    text = """[project]
name = "x"
requires-python = ">=3.10"
dependencies = ["numpy<2"]
[project.optional-dependencies]
cpu = ["onnxruntime==1.19.2"]
gpu = ["onnxruntime-gpu==1.19.2"]
"""
    assert rules(run(text, "pyproject.toml"), "error") == set()
    assert "pair" in rules(
        run(text.replace('"onnxruntime==1.19.2"', '"torch==2.5.1", "torchvision==0.19.0"'), "pyproject.toml"), "error"
    )


def test_the_range_of_a_project_decides_about_wheels() -> None:
    text = '[project]\nname = "x"\nrequires-python = ">=3.13"\ndependencies = ["torch==2.4.0"]\n'
    assert "python-version" in rules(run(text, "pyproject.toml"), "error")


def test_a_lock_is_taken_as_solved() -> None:
    text = 'version = 1\n[[package]]\nname = "torch"\nversion = "2.5.1"\n[[package]]\nname = "torch"\nversion = "2.5.1+cu124"\n'
    assert rules(run(text, "uv.lock"), "error") == set()


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("FROM ubuntu:22.04\nRUN source /x && echo\n", "shell-source"),
        ("FROM pytorch/pytorch:2.4.0-cuda12.4-cudnn9-devel\nRUN conda activate x && pip install y\n", "conda-activate"),
        ("FROM continuumio/miniconda3\nRUN conda install -y numpy\n", "conda-terms"),
        ("FROM ubuntu:22.04\nCOPY ../x /x\n", "outside-context"),
        ("FROM ubuntu:22.04\nRUN yum install -y gcc\n", "wrong-package-manager"),
        ("FROM python:3.11\nRUN pip install torch==2.5.1 -i http://pypi.example.org/simple\n", "untrusted-index"),
        ("FROM nvidia/cuda:12.2.2-cudnn8-devel-ubuntu22.04\nRUN apt-get update && apt-get install -y libcudnn8=8.9.7.29-1+cuda12.2\n", "held-package"),
    ],
)  # fmt: skip
def test_what_breaks_a_build(text: str, rule: str) -> None:
    assert rule in rules(run(text), "error")


@pytest.mark.parametrize(
    "text",
    [
        'FROM ubuntu:22.04\nSHELL ["/bin/bash", "-c"]\nRUN source /x && echo\n',
        'FROM ubuntu:22.04\nRUN bash -c "source /x && echo"\n',
        "FROM pytorch/pytorch:2.4.0-cuda12.4-cudnn9-devel\nRUN . /opt/conda/etc/profile.d/conda.sh && conda activate x && pip install y\n",
        "FROM continuumio/miniconda3:24.7.1-0\nRUN conda install -y numpy\n",
        "FROM python:3.11\nRUN pip install torch==2.5.1 -i http://pypi.example.org/simple --trusted-host pypi.example.org\n",
    ],
)
def test_what_builds(text: str) -> None:
    assert rules(run(text), "error") == set()


def test_bitsandbytes_needs_a_library_for_the_cuda_of_torch() -> None:
    found = run("torch==2.5.1\nbitsandbytes==0.42.0\n", "requirements.txt")
    assert "bitsandbytes-cuda" in rules(found, "error")
    assert rules(run("torch==2.5.1\nbitsandbytes==0.44.1\n", "requirements.txt"), "error") == set()


def test_an_impossible_cell_of_a_matrix_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "m.yaml"
    path.write_text(
        "schema: gpuimg/v1\nregistry: r.example/x\nimages:\n"
        '  - {framework: torch, version: ["2.1.0"], cuda: ["12.4"], python: "3.11"}\n',
        encoding="utf-8",
    )
    found = lint_text(path.read_text(encoding="utf-8"), str(path), load(), Options(), today=TODAY)
    assert one(found, "matrix-cell").line == 4
    assert "12.1" in one(found, "matrix-cell").message


def test_an_unknown_card_is_not_rounded_to_yes() -> None:
    with pytest.raises(CannotTell):
        run("torch==2.5.1\n", "requirements.txt", gpus=("RTX 9990 Mega",))


@pytest.mark.parametrize(
    ("text", "severity"),
    [
        ("--extra-index-url https://download.pytorch.org/whl/cu121\ntorch==2.6.0\n", "warning"),
        ("--index-url https://download.pytorch.org/whl/cu121\ntorch==2.6.0\n", "error"),
    ],
)
def test_an_index_without_the_version(text: str, severity: str) -> None:
    assert one(run(text, "requirements.txt"), "index-lacks-version").severity == severity


def test_an_index_with_the_version_decides_about_the_cuda() -> None:
    text = "--extra-index-url https://download.pytorch.org/whl/cu118\ntorch==2.5.1\ncupy-cuda11x==13.3.0\n"
    assert "two-cuda" not in rules(run(text, "requirements.txt"))
    assert "two-cuda" in rules(run(text.replace("cu118", "cu124"), "requirements.txt"))


def test_every_rule_is_documented() -> None:
    root = Path(__file__).parents[2]
    documented = set(re.findall(r"`([a-z0-9-]+)`", (root / "docs" / "lint.md").read_text(encoding="utf-8")))
    used: set[str] = set()
    for path in (root / "gpuimg" / "lint").glob("*.py"):
        used.update(re.findall(r'finding\(\s*"([a-z0-9-]+)"', path.read_text(encoding="utf-8")))
    for path in (root / "gpuimg" / "project" / "moving").glob("*.py"):
        source = path.read_text(encoding="utf-8")
        used.update(re.findall(r'(?:LintFinding|_found|self\.add)\(\s*"([a-z0-9-]+)"', source))
    assert len(used) > 100
    assert used - documented == set()


PAIRS = [
    ("2.9.0", "0.24.0", "2.9.0"), ("2.8.0", "0.23.0", "2.8.0"), ("2.7.1", "0.22.1", "2.7.1"), ("2.6.0", "0.21.0", "2.6.0"),
    ("2.5.1", "0.20.1", "2.5.1"), ("2.4.1", "0.19.1", "2.4.1"), ("2.3.1", "0.18.1", "2.3.1"), ("2.2.2", "0.17.2", "2.2.2"),
    ("2.1.2", "0.16.2", "2.1.2"), ("2.0.1", "0.15.2", "2.0.2"), ("1.13.1", "0.14.1", "0.13.1"), ("1.12.1", "0.13.1", "0.12.1"),
    ("1.11.0", "0.12.0", "0.11.0"), ("1.10.2", "0.11.3", "0.10.2"), ("1.9.1", "0.10.1", "0.9.1"), ("1.8.1", "0.9.1", "0.8.1"),
]  # fmt: skip
"""torch, torchvision and torchaudio of one release (https://pytorch.org/get-started/previous-versions/)."""


@pytest.mark.parametrize(("torch", "vision", "audio"), PAIRS)
def test_the_releases_of_pytorch_are_sound_in_every_build(torch: str, vision: str, audio: str) -> None:
    plain = f"torch=={torch}\ntorchvision=={vision}\ntorchaudio=={audio}\nnumpy<2\n"
    assert rules(run(plain, "requirements.txt"), "error") == set()
    labels = {b.local for b in load().builds("torch", torch, machine="x86_64") if b.local and b.local.startswith("cu")}
    assert labels
    for label in labels:
        index = f"https://download.pytorch.org/whl/{label}"
        pinned = f"--extra-index-url {index}\ntorch=={torch}+{label}\ntorchvision=={vision}+{label}\ntorchaudio=={audio}+{label}\nnumpy<2\n"
        assert rules(run(pinned, "requirements.txt"), "error") == set()
        only = f"--index-url {index}\ntorch=={torch}\ntorchvision=={vision}\ntorchaudio=={audio}\n"
        assert rules(run(only, "requirements.txt"), "error") == set()


@pytest.mark.parametrize(("torch", "vision"), [(PAIRS[i][0], PAIRS[i + 1][1]) for i in range(len(PAIRS) - 1)])
def test_the_vision_of_another_release_is_an_error(torch: str, vision: str) -> None:
    assert "pair" in rules(run(f"torch=={torch}\ntorchvision=={vision}\nnumpy<2\n", "requirements.txt"), "error")


@pytest.mark.parametrize("framework", ["vllm", "sglang"])
def test_an_engine_beside_the_torch_it_pins_is_sound(framework: str) -> None:
    base = load()
    for version in base.versions(framework)[-30:]:
        build = next((b for b in base.builds(framework, version) if b.machine == "x86_64"), None)
        pinned = [
            r for r in (build.requires if build else ()) if r.startswith(("torch==", "torchvision==", "torchaudio=="))
        ]
        text = "\n".join([f"{framework}=={version}", *pinned]) + "\n"
        assert rules(run(text, "requirements.txt"), "error") == set(), text


def test_every_live_tag_is_sound_and_every_deleted_one_an_error() -> None:
    base = load()
    where = ("Dockerfile", 1)
    for tag in base.base_tags[::7]:
        found = list(image_tag(f"nvidia/cuda:{tag.tag}", where, base))
        assert any(f.severity == "error" for f in found) == tag.deleted, tag.tag
    for image in base.images[::5]:
        found = list(image_tag(f"{image.repository}:{image.tag}", where, base))
        assert not any(f.severity == "error" for f in found), image.tag


def test_compose_reads_the_dockerfile_it_builds(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM nvidia/cuda:12.4.1-base-ubuntu22.04\n", encoding="utf-8")
    text = "services:\n  a:\n    build: .\n"
    found = lint_text(text, "compose.yaml", load(), Options(), folder=tmp_path, today=TODAY)
    assert one(found, "compose-no-gpu").severity == "warning"
    assert (
        rules(lint_text(text + "    gpus: all\n", "compose.yaml", load(), Options(), folder=tmp_path, today=TODAY))
        == set()
    )
