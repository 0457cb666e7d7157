"""Matrix cells → plans: bases, labels, refusals with what is nearest; resolve; the answer document."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpuimg.cli.fit import command as fit_command
from gpuimg.cli.resolve import command as resolve_command
from gpuimg.errors import BadInput
from gpuimg.knowledge import load
from gpuimg.knowledge.fit import answer
from gpuimg.knowledge.planning import Target, plan_cell
from gpuimg.knowledge.requirement import parse_requirement
from gpuimg.knowledge.resolve import resolve
from gpuimg.knowledge.situation import Question
from gpuimg.nouns import Cell, Gpu, Host

KNOWLEDGE = load()


def _cell(framework: str, version: str, **changes: object) -> Cell:
    values: dict[str, object] = {
        "id": "x", "framework": framework, "version": version, "device": "cuda", "cuda": "auto", "cudnn": "auto",
        "python": "3.11", "os": "ubuntu22.04", "profile": "base",
    }  # fmt: skip
    values.update(changes)
    if values["device"] == "cpu":
        values["cuda"] = None
    return Cell(**values)  # type: ignore[arg-type]


def test_a_wheel_that_brings_cuda_gets_a_plain_distribution() -> None:
    plan = plan_cell(_cell("torch", "2.6.0", cuda="12.4"), knowledge=KNOWLEDGE)
    assert plan.verdict == "fits"
    assert plan.base is not None
    assert (plan.base.flavour, plan.base.base_cuda) == ("distribution", None)
    assert (plan.wheel_cuda, plan.index_url, plan.requirements[0]) == ("12.4", None, "torch==2.6.0")
    assert plan.min_driver == "525.60.13"
    assert plan.estimated_mib
    assert "sm_90" in plan.sm


def test_another_cuda_comes_from_its_own_index() -> None:
    plan = plan_cell(_cell("torch", "2.6.0", cuda="11.8"), knowledge=KNOWLEDGE)
    assert plan.requirements[0] == "torch==2.6.0+cu118"
    assert plan.index_url
    assert plan.index_url.endswith("cu118")


def test_a_system_linked_wheel_gets_cudnn_runtime() -> None:
    plan = plan_cell(_cell("tensorflow", "2.12.0", python="3.10"), knowledge=KNOWLEDGE)
    assert plan.base is not None
    assert (plan.base.flavour, plan.base.base_cuda) == ("cudnn-runtime", "11.8")


def test_cpu_cells_take_the_cpu_build() -> None:
    wanted = {
        "torch": ("2.6.0", "torch==2.6.0+cpu"), "tensorflow": ("2.18.0", "tensorflow-cpu==2.18.0"),
        "onnxruntime": ("1.20.1", "onnxruntime==1.20.1"), "jax": ("0.4.30", "jax==0.4.30"),
        "paddlepaddle": ("3.3.1", "paddlepaddle==3.3.1"),
    }  # fmt: skip
    for framework, (version, line) in wanted.items():
        plan = plan_cell(_cell(framework, version, device="cpu"), knowledge=KNOWLEDGE)
        assert plan.verdict == "fits", framework
        assert plan.requirements[0] == line
        assert plan.wheel_cuda is None


def test_impossible_cells_are_refused_with_the_nearest_possible_one() -> None:
    no_cuda = plan_cell(_cell("torch", "2.6.0", cuda="12.1"), knowledge=KNOWLEDGE)
    assert no_cuda.verdict == "does-not-fit"
    assert no_cuda.instead[0]["cuda"] == "12.4"
    no_python = plan_cell(_cell("torch", "2.5.1", python="3.7"), knowledge=KNOWLEDGE)
    assert no_python.verdict == "does-not-fit"
    assert no_python.instead[0]["python"] == "3.9"
    pair = plan_cell(_cell("torch", "2.5.1", packages=("torchvision==0.21.0",)), knowledge=KNOWLEDGE)
    assert pair.verdict == "does-not-fit"
    unknown = plan_cell(_cell("torch", "9.9.9"), knowledge=KNOWLEDGE)
    assert unknown.verdict == "unknown"
    assert unknown.instead


def test_targets_reject_what_could_not_run_there() -> None:
    cell = _cell("torch", "2.6.0", cuda="12.4")
    assert plan_cell(cell, targets=[Target("H200")], knowledge=KNOWLEDGE).verdict == "fits"
    refused = plan_cell(cell, targets=[Target("H200"), Target("RTX 5090", "570.124.06")], knowledge=KNOWLEDGE)
    assert refused.verdict == "does-not-fit"
    assert refused.instead
    assert plan_cell(cell, targets=[Target("RTX 4090", "530.30.02")], knowledge=KNOWLEDGE).verdict == "fits-with-compat"


def test_an_unknown_framework_is_bad_input_with_place_and_nearest() -> None:
    with pytest.raises(BadInput, match=r"m\.yaml:7: unknown framework 'torhc'.*did you mean 'torch'"):
        plan_cell(_cell("torhc", "2.6.0", file="m.yaml", line=7), knowledge=KNOWLEDGE)


def test_ten_thousand_cells_are_planned_quickly() -> None:
    cells = [
        _cell("torch", version, cuda=cuda, python=python, os=os)
        for version in KNOWLEDGE.versions("torch")[-25:]
        for cuda in ("11.8", "12.1", "12.4", "12.6", "auto")
        for python in ("3.9", "3.10", "3.11", "3.12", "3.13")
        for os in ("ubuntu20.04", "ubuntu22.04", "ubuntu24.04", "debian12")
    ] * 4
    began = time.process_time()
    for cell in cells[:10000]:
        plan_cell(cell, knowledge=KNOWLEDGE)
    assert time.process_time() - began < 6  # seconds; about one on an idle machine


def test_resolve_takes_the_newest_that_runs_and_says_what_it_turned_down() -> None:
    host = Host(gpus=(Gpu("NVIDIA GeForce RTX 3090"), Gpu("NVIDIA GeForce RTX 5060 Ti")), driver="570.133.07")
    found = resolve(Question((parse_requirement("torch>=2.6"),), host=host, python="3.11"), KNOWLEDGE)
    assert found.exit_code == 0
    assert found.chosen["wheel_cuda"] in {"12.8", "12.9"}
    assert any("too old" in one["reason"] for one in found.rejected)
    bare = resolve(Question((parse_requirement("jax"),), gpus=("A100",), driver="550.54.14"), KNOWLEDGE)
    assert bare.chosen["requirement"].startswith("jax[cuda12]==")


def test_the_document_has_the_keys_scripts_rely_on() -> None:
    found = answer(Question((parse_requirement("torch==2.6.0"),), gpus=("RTX 5090:2",), driver="570.124.06"), KNOWLEDGE)
    document = json.loads(json.dumps(found.to_json()))
    assert list(document) == [
        "verdict", "requirement", "host", "chosen", "per_gpu", "findings", "missing", "instead"
    ]  # fmt: skip
    assert document["per_gpu"][0]["verdict"] == "does-not-fit"
    assert document["host"]["gpus"][0]["compute_capability"] == "12.0"
    assert document["instead"][0]["wheel_cuda"]


def test_facts_that_cannot_change_the_answer_are_not_asked_for() -> None:
    early = answer(Question((parse_requirement("torch==2.0.1+cu118"),), gpus=("RTX 5090",)), KNOWLEDGE)
    assert (early.verdict, early.missing) == ("does-not-fit", ())
    asked = answer(Question((parse_requirement("torch==1.8.1+cu102"),), driver="450.51.05", python="3.8"), KNOWLEDGE)
    assert (asked.verdict, asked.missing) == ("unknown", ("gpu",))


def test_all_blockers_are_named_together() -> None:
    found = answer(
        Question((parse_requirement("torch==2.6.0"),), gpus=("RTX 5090",), driver="470.82.01", python="3.8"), KNOWLEDGE
    )
    assert {f.rule for f in found.findings if f.verdict == "no"} >= {"sm", "driver", "gpu-driver", "python"}


def test_contradictory_facts_are_pointed_out() -> None:
    question = Question((parse_requirement("torch==2.5.1"),), gpus=("A100",), driver="535.104.05", driver_cuda="12.8")
    assert any(f.rule == "driver-contradiction" for f in answer(question, KNOWLEDGE).findings)


def test_a_label_in_a_file_needs_an_index_that_holds_it(tmp_path: Path) -> None:
    bare, indexed = tmp_path / "bare.txt", tmp_path / "indexed.txt"
    bare.write_text("torch==2.3.1+cu121\n")
    indexed.write_text("--extra-index-url https://download.pytorch.org/whl/cu121\ntorch==2.3.1+cu121\n")
    verdicts = {}
    for file in (bare, indexed):
        arguments = ["-r", str(file), "--gpu", "A100", "--driver", "535.104.05", "--python", "3.11", "--json"]
        result = CliRunner().invoke(fit_command, arguments, standalone_mode=False)
        verdicts[file.stem] = json.loads(result.stdout)["verdict"]
    assert verdicts == {"bare": "does-not-fit", "indexed": "fits"}


def test_an_open_requirement_in_a_file_is_what_pip_takes_today(tmp_path: Path) -> None:
    file = tmp_path / "requirements.txt"
    file.write_text("torch\n")
    arguments = ["--gpu", "RTX 5090", "--driver", "570.124.06", "--python", "3.11", "--json"]
    by_file = CliRunner().invoke(fit_command, ["-r", str(file), *arguments], standalone_mode=False)
    by_hand = CliRunner().invoke(fit_command, ["torch", *arguments], standalone_mode=False)
    assert json.loads(by_file.stdout)["verdict"] == "does-not-fit"
    told = json.loads(by_hand.stdout)
    assert told["verdict"].startswith("fits")
    assert any(f["rule"] == "pip-pick" for f in told["findings"])


@pytest.mark.parametrize(
    "arguments",
    [[], ["torch==2.6.0", "--driver", "new"], ["torch==2.6.0", "--os", "ubunut22.04"], ["!!"], ["-r", "no-such-file"]],
)
def test_bad_input_is_refused_with_a_message(arguments: list[str]) -> None:
    result = CliRunner().invoke(fit_command, arguments, standalone_mode=False)
    assert isinstance(result.exception, BadInput)


def test_text_for_people_begins_with_the_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    for command in (fit_command, resolve_command):
        code = command.main(["torch==2.6.0", "--gpu", "RTX 5090", "--driver", "570.124.06"], standalone_mode=False)
        assert code == 1
        assert capsys.readouterr().out.startswith("✗ does not fit")


def test_files_as_projects_have_them(tmp_path: Path) -> None:
    """What a file says, and the verdict on an A100 under driver 550.54.14 with Python 3.10."""
    wanted = {
        "torch==2.5.1\nflash-attn==2.7.4.post1\n": "fits",
        "torch==2.6.0\ntorchvision==0.21.0\ntriton==3.2.0\nnumpy==2.1.3\nnvidia-cudnn-cu12==9.1.0.70\n": "fits",
        "pytorch==2.0.1\n": "does-not-fit",
        "paddlepaddle-gpu==3.0.0\n": "does-not-fit",
        "-i https://www.paddlepaddle.org.cn/packages/stable/cu118/\npaddlepaddle-gpu==3.0.0\n": "fits",
        "--index-url https://download.pytorch.org/whl/cpu\ntorch==2.3.1\n": "does-not-fit",
        "--index-url https://download.pytorch.org/whl/cu118\ntorch\n": "fits",
        "--extra-index-url https://download.pytorch.org/whl/cu118\ntorch\n": "does-not-fit",
        "torch==2.3.1 ; sys_platform == 'linux'\ntorch==2.9.0 ; sys_platform == 'win32'\n": "fits",
        "transformers==4.48.0\ntorch==2.3.1\n": "fits",
    }
    for number, (text, verdict) in enumerate(wanted.items()):
        file = tmp_path / f"r{number}.txt"
        file.write_text(text)
        arguments = ["-r", str(file), "--gpu", "A100", "--driver", "550.54.14", "--python", "3.10", "--json"]
        result = CliRunner().invoke(fit_command, arguments, standalone_mode=False)
        document = json.loads(result.stdout)
        assert document["verdict"] == verdict, (text, document["findings"])
