"""GPU names, image references, requirement spellings and NVIDIA_REQUIRE_CUDA, as people and registries write them."""

from __future__ import annotations

import pytest

from gpuimg.knowledge import load
from gpuimg.knowledge.gpunames import identify
from gpuimg.knowledge.images import newest_cuda_tag, read_image
from gpuimg.knowledge.require import Facts, admitted_branches, holds
from gpuimg.knowledge.requirement import applies, label_cuda, merge, parse_requirement, text_of

KNOWLEDGE = load()


@pytest.mark.parametrize(
    ("text", "capability", "count"),
    [
        ("4090", "8.9", 1), ("RTX 4090", "8.9", 1), ("NVIDIA GeForce RTX 4090", "8.9", 1), ("rtx4090", "8.9", 1),
        ("4090D", "8.9", 1), ("RTX 4090 D", "8.9", 1), ("A100-SXM4-80GB", "8.0", 1), ("3090 24G", "8.6", 1), ("sm_86", "8.6", 1),
        ("8.6", "8.6", 1), ("sm_120", "12.0", 1), ("V100-32G", "7.0", 1), ("GRID T4-8Q", "7.5", 1), ("A100-20C", "8.0", 1),
        ("4090:8", "8.9", 8), ("4090*2", "8.9", 2), ("3090x4", "8.6", 4), ("8卡A100", "8.0", 8), ("4x A100 80GB", "8.0", 4),
        ("RTX 4090 24GB x 8", "8.9", 8), ("GeForce RTX 4090 显卡", "8.9", 1), ("A100 MIG 3g.40gb", "8.0", 1), ("4080s", "8.9", 1),
        ("RTX 4070 Ti SUPER", "8.9", 1), ("1080ti", "6.1", 1), ("A6000", "8.6", 1), ("RTX 6000 Ada", "8.9", 1),
        ("Quadro RTX 6000", "7.5", 1), ("RTX PRO 6000", "12.0", 1), ("GB10", "12.1", 1), ("DGX Spark", "12.1", 1), ("H20", "9.0", 1),
        ("L20", "8.9", 1), ("GH200", "9.0", 1), ("2080 Ti 22G", "7.5", 1), ("RTX 3070 Laptop", "8.6", 1), ("TITAN V", "7.0", 1),
    ],
)  # fmt: skip
def test_cards(text: str, capability: str, count: int) -> None:
    card = identify(text, KNOWLEDGE)
    assert (card.compute_capability, card.count, card.problem) == (capability, count, None)


@pytest.mark.parametrize("text", ["RTX 9090", "foo", "RTX 1080", "sm_99", "vGPU"])
def test_unknown_cards_are_never_guessed(text: str) -> None:
    card = identify(text, KNOWLEDGE)
    assert card.compute_capability is None
    assert card.problem


@pytest.mark.parametrize("text", ["RTX 6000", "RTX 4000", "Titan X", "NVIDIA GeForce ..."])
def test_ambiguous_cards_name_what_they_may_be(text: str) -> None:
    card = identify(text, KNOWLEDGE)
    assert card.compute_capability is None
    assert len(card.models) > 1


@pytest.mark.parametrize("text", ["MI300X", "RX 7900 XTX", "昇腾910B", "Intel Arc A770", "Gaudi 3", "TPU v4"])
def test_other_vendors(text: str) -> None:
    assert identify(text, KNOWLEDGE).foreign


@pytest.mark.parametrize(
    ("start", "memory", "power", "name"),
    [
        ("NVIDIA GeForce ...", 12288, 170, "NVIDIA GeForce RTX 3060"),
        ("NVIDIA GeForce ...", 24576, 350, "NVIDIA GeForce RTX 3090"),
        ("GeForce RTX 208...", 11019, 250, "NVIDIA GeForce RTX 2080 Ti"),
        ("NVIDIA A100-SXM...", 81920, 400, "NVIDIA A100-SXM4-80GB"),
    ],
)
def test_names_cut_off_by_nvidia_smi(start: str, memory: int, power: float, name: str) -> None:
    assert identify(start, KNOWLEDGE, memory_mib=memory, power_w=power).name == name


@pytest.mark.parametrize(
    ("reference", "wanted"),
    [
        ("nvidia/cuda:8.0-cudnn5-devel-ubuntu14.04", {"base_cuda": "8.0", "flavour": "cudnn-devel", "os": "ubuntu14.04"}),
        ("nvidia/cuda:13.0.1-cudnn-runtime-ubuntu24.04", {"base_cuda": "13.0", "flavour": "cudnn-runtime"}),
        ("docker.m.daocloud.io/nvidia/cuda:12.1.1-cudnn8-devel-ubuntu22.04", {"base_cuda": "12.1", "kind": "cuda"}),
        ("pytorch/pytorch:2.6.0-cuda12.4-cudnn9-devel", {"base_cuda": "12.4", "frameworks": (("torch", "2.6.0"),)}),
        ("tensorflow/tensorflow:2.15.0-gpu", {"frameworks": (("tensorflow", "2.15.0"),)}),
        ("nvcr.io/nvidia/pytorch:23.10-py3", {"base_cuda": "12.2", "kind": "ngc"}),
        ("vllm/vllm-openai:v0.6.3", {"python": "3.12"}),
        (
            "opengrps/grps_gpu:grps1.1.0_cuda11.8_cudnn8.6_tf2.12.0_torch2.1.2_py3.8",
            {"base_cuda": "11.8", "python": "3.8", "frameworks": (("torch", "2.1.2"), ("tensorflow", "2.12.0"))},
        ),
        ("deepspeed/deepspeed:v072_torch112_cu117", {"base_cuda": "11.7", "frameworks": (("torch", "1.12"),)}),
        ("ubuntu:22.04", {"os": "ubuntu22.04", "python": "3.10", "python_installed": False}),
        ("python:3.11-slim", {"python": "3.11", "python_installed": True}),
        ("rocm/pytorch:latest", {"kind": "rocm"}),
    ],
)  # fmt: skip
def test_image_references(reference: str, wanted: dict[str, object]) -> None:
    facts = read_image(reference, KNOWLEDGE)
    assert {k: getattr(facts, k) for k in wanted} == wanted


def test_a_release_month_is_not_a_cuda_version() -> None:
    assert read_image("nvcr.io/nvidia/pytorch:23.10-py3", KNOWLEDGE).base_cuda != "23.10"
    unknown = read_image("nvcr.io/nvidia/pytorch:49.10-py3", KNOWLEDGE)
    assert unknown.problem
    assert unknown.base_cuda is None


def test_newest_tags_are_published_ones() -> None:
    for cuda in ("11.8", "12.4", "12.8", "13.0"):
        tag = newest_cuda_tag(KNOWLEDGE, cuda, flavour="base")
        assert tag is not None
        assert not read_image(tag, KNOWLEDGE).deleted


def test_require_cuda_is_a_disjunction_with_brands() -> None:
    expression = "cuda>=12.6 brand=tesla,driver>=535,driver<536 brand=nvidiartx,driver>=550,driver<551"
    assert holds(expression, Facts("12.6", "560.35.03", "8.6", "geforce")) is True
    assert holds(expression, Facts("12.4", "550.142", "8.6", "geforce")) is False
    assert holds(expression, Facts("12.2", "535.104.05", "7.5", "tesla")) is True
    assert holds(expression, Facts("12.4", "550.142", "8.6", None)) is None
    assert holds("", Facts()) is True
    assert admitted_branches(expression) == (535,)


def test_requirements() -> None:
    made = parse_requirement("tensorflow[and-cuda]==2.16.1")
    assert (made.name, made.extras, made.specifier) == ("tensorflow", ("and-cuda",), "==2.16.1")
    assert parse_requirement("jax[cuda12_pip]==0.4.20").extras == ("cuda12-pip",)
    assert parse_requirement("tensorflow-gpu==2.10").name == "tensorflow-gpu"
    assert parse_requirement("torch>=2.4, <2.7").specifier == parse_requirement("torch<2.7,>=2.4").specifier
    assert parse_requirement("paddlepaddle-gpu==2.4.2.post112").specifier == "==2.4.2.post112"
    assert text_of(parse_requirement("torch 2.5.1 cu121")) == "torch==2.5.1+cu121"
    assert label_cuda("cu124") == "12.4"
    assert label_cuda("post112") == "11.2"
    assert label_cuda("cu92") == "9.2"


def test_markers_and_merging() -> None:
    assert not applies(parse_requirement("torch; sys_platform == 'win32'"), python="3.11", machine="x86_64")
    assert applies(parse_requirement("torch; python_version < '3.12'"), python="3.11", machine="x86_64")
    merged = merge([parse_requirement("torch>=2.0"), parse_requirement("torch<2.4")])
    assert len(merged) == 1
    assert merged[0].specifier == "<2.4,>=2.0"
