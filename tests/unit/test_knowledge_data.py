"""The data itself: every row sourced and well-formed, compiled files in step with the hand tables, known facts."""

from __future__ import annotations

import json
import re
import time

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from gpuimg.harvest import compile as compiler
from gpuimg.knowledge.base import DATA, Knowledge, load
from gpuimg.knowledge.tables import Build

TARGET = re.compile(r"(sm|compute)_\d{2,3}[af]?")
CUDA = re.compile(r"\d{1,2}(\.\d{1,2})?")
PYTHON = re.compile(r"[23]\.\d{1,2}")


@pytest.fixture(scope="module")
def base() -> Knowledge:
    return Knowledge()


@pytest.fixture(scope="module")
def builds(base: Knowledge) -> list[Build]:
    return [b for name in (*base.frameworks(), *base.companion_names()) for b in base.builds(name)]


def build(base: Knowledge, name: str, version: str, **want: object) -> Build:
    found = [b for b in base.builds(name, version) if all(getattr(b, k) == v for k, v in want.items())]
    assert len(found) == 1, (name, version, want, found)
    return found[0]


def test_compiled_files_match_the_hand_tables() -> None:
    for name, content in compiler.compile_all(compiler.read_hand()).items():
        stored = json.loads((DATA / name).read_text(encoding="utf-8"))
        assert stored == json.loads(compiler.dump(content)), f"{name} is stale: python -m gpuimg.harvest.compile"


def test_every_row_names_a_source_that_exists(base: Knowledge, builds: list[Build]) -> None:
    rows = [
        *builds, *base.gpus, *base.toolkits, *base.forward_compat, *base.architectures, *base.cudnn, *base.limits,
        *base.base_tags, *base.images, *base.oses.values(), *base.removed, *base.conflicts,
    ]  # fmt: skip
    assert len(rows) > 6000
    known = re.compile(r"https?://\S+|pypi:|.*github |.*https?://|.*(NVIDIA|nvidia-smi|installer script|derived|copy)")
    for row in rows:
        assert row.source, row
        for part in row.source.split("; "):
            assert known.match(part) or "collector's knowledge" in part or len(part) > 20, row


def test_build_rows_are_well_formed(builds: list[Build]) -> None:
    for b in builds:
        assert Version(b.version)
        assert b.machine in ("x86_64", "aarch64"), b
        assert b.device in ("cuda", "cpu", None), b
        if b.wheel_cuda is not None:
            assert CUDA.fullmatch(b.wheel_cuda), b
            assert b.device != "cpu" or b.notes, b
        for target in b.sm or ():
            assert TARGET.fullmatch(target), b
        for python in b.pythons or ():
            assert PYTHON.fullmatch(python), b
        for line in b.requires:
            Requirement(line)
        if b.index in ("pytorch", "paddle", "vllm"):
            assert b.index_url is not None, b
            assert b.index_url.startswith("https://"), b
        assert not (b.default and b.index_url and b.index != "nvidia"), b
        assert set(b.how.values()) <= {"embedded", "pin", "joined", "range", "soname", "docs"}, b


def test_no_mirror_or_machine_path_in_the_data() -> None:
    for path in DATA.rglob("*"):
        if path.is_file():
            text = path.read_text(encoding="utf-8")
            assert not re.search(r"/work/|/root/|127\.0\.0\.1|localhost|:\d{4}/simple", text), path


def test_versions_are_in_order(base: Knowledge) -> None:
    for name in base.frameworks():
        versions = [Version(v) for v in base.versions(name)]
        assert versions == sorted(versions), name


def test_torch_sm_lists_are_measured(base: Knowledge) -> None:
    measured = [b for b in base.builds("torch") if b.sm and b.how.get("sm") == "embedded"]
    assert len(measured) >= 40
    assert {b.version for b in measured} >= {"1.0.0", "1.7.1", "1.13.1", "2.0.1", "2.5.1", "2.8.0", "2.15.0"}


def test_torch_builds_of_one_release_agree_with_the_measured_one(base: Knowledge) -> None:
    """The labelled twin of the PyPI build has the same CUDA and the same code."""
    for pypi in [b for b in base.builds("torch") if b.index == "pypi" and b.wheel_cuda]:
        label = "cu" + str(pypi.wheel_cuda).replace(".", "")
        for twin in base.builds("torch", pypi.version, machine=pypi.machine):
            if twin.local == label and twin.sm:
                assert set(twin.sm) - {"compute_50"} == set(pypi.sm or ()) - {"compute_50"}, (pypi, twin)


def test_every_framework_row_has_a_base_it_can_be_built_on(base: Knowledge, builds: list[Build]) -> None:
    """Wheels that bring CUDA need an OS new enough; system-linked ones an nvidia/cuda image of their CUDA."""
    glibcs = [Version(o.glibc) for o in base.oses.values()]
    minors = {t.base_cuda for t in base.base_tags}
    majors = {m.split(".")[0] for m in minors}
    for b in builds:
        if b.framework not in base.frameworks() or b.index == "none":
            continue
        if b.glibc is not None:
            assert max(glibcs) >= Version(b.glibc), b
        if b.device == "cuda" and not b.bundles_cuda and b.wheel_cuda is not None:
            major, _, minor = b.wheel_cuda.partition(".")
            assert major in majors, b
            if minor:
                assert any(m.split(".")[0] == major and Version(m) >= Version(b.wheel_cuda) for m in minors), b


def test_no_pin_dangles(base: Knowledge) -> None:
    """An exact pin names a version that the tables know, where they know the package at all."""
    for name in ("torchvision", "torchaudio", "xformers", "vllm"):
        for b in base.builds(name):
            for requirement in map(Requirement, b.requires):
                for spec in requirement.specifier:
                    if requirement.name in ("torch", "torchvision", "torchaudio") and spec.operator == "==":
                        if "*" in spec.version:
                            continue
                        public = str(Version(spec.version).public)
                        assert base.builds(requirement.name, public), (b.framework, b.version, str(requirement))


def test_the_found_contradictions_are_each_settled(base: Knowledge) -> None:
    counted: dict[str, int] = {}
    for conflict in base.conflicts:
        assert conflict.right, conflict
        assert conflict.why, conflict
        assert len(conflict.says) >= 2, conflict
        counted[conflict.subject] = counted.get(conflict.subject, 0) + 1
    found = {"tensorflow": 13, "jax": 2, "tensorrt-llm": 3, "onnxruntime-gpu": 1, "xformers": 13}
    assert {k: counted[k] for k in found} == found


def test_resolved_contradictions_are_what_the_tables_say(base: Knowledge) -> None:
    for conflict in base.conflicts:
        if conflict.subject == "tensorflow" and conflict.state == "resolved":
            version = conflict.versions.removeprefix("==")
            row = build(base, "tensorflow", version, machine="x86_64", extra=None)
            assert conflict.right == f"wheel_cuda {row.wheel_cuda}"


def test_toolkits_and_drivers_are_monotonic(base: Knowledge) -> None:
    seen: list[tuple[Version, tuple[int, ...]]] = []
    for toolkit in base.toolkits:
        if toolkit.driver_linux:
            seen.append((Version(toolkit.version), tuple(int(p) for p in toolkit.driver_linux.split("."))))
    assert [d for _, d in seen] == sorted(d for _, d in seen)
    assert base.first_driver("12.4") == "550.54.14"
    assert base.first_driver("11.8") == "520.61.05"
    assert base.driver_cuda("535.104.05") == "12.2"
    assert base.driver_cuda("470.82.01") == "11.4"
    assert base.driver_cuda("525.147.05") == "12.0"
    assert base.driver_cuda("580.95.05") == "13.0"
    toolkit = base.toolkit("12.4")
    assert toolkit is not None
    assert toolkit.version == "12.4.1"


def test_architectures_cover_every_card(base: Knowledge) -> None:
    known = {a.compute_capability for a in base.architectures}
    assert len(base.gpus) >= 100
    for gpu in base.gpus:
        assert gpu.compute_capability in known, gpu
    assert len({g.name for g in base.gpus}) == len(base.gpus)


@pytest.mark.parametrize(
    ("name", "capability", "data_centre"),
    [
        ("Tesla K80", "3.7", True),
        ("Tesla M60", "5.2", True),
        ("Tesla P100-PCIE-16GB", "6.0", True),
        ("Tesla V100-SXM2-32GB", "7.0", True),
        ("Tesla T4", "7.5", True),
        ("NVIDIA A100-SXM4-80GB", "8.0", True),
        ("NVIDIA GeForce RTX 3090", "8.6", False),
        ("NVIDIA GeForce RTX 4090", "8.9", False),
        ("NVIDIA L40S", "8.9", True),
        ("NVIDIA H100 80GB HBM3", "9.0", True),
        ("NVIDIA H200", "9.0", True),
        ("NVIDIA B200", "10.0", True),
        ("NVIDIA B300 SXM6 AC", "10.3", True),
        ("NVIDIA GeForce RTX 5090", "12.0", False),
        ("NVIDIA GB10", "12.1", True),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "12.0", False),
    ],
)
def test_cards(base: Knowledge, name: str, capability: str, data_centre: bool) -> None:
    (gpu,) = [g for g in base.gpus if g.name == name]
    assert (gpu.compute_capability, gpu.data_centre) == (capability, data_centre)


def test_cudnn_rows_cover_every_version_once(base: Knowledge) -> None:
    versions = {
        b.version for n in ("nvidia-cudnn-cu11", "nvidia-cudnn-cu12", "nvidia-cudnn-cu13") for b in base.builds(n)
    }
    for version in versions | {"7.6.5", "8.0.5", "8.2.4", "8.9.7"}:
        rows = [r for r in base.cudnn if SpecifierSet(r.cudnn).contains(version)]
        assert len(rows) == 1, (version, rows)
    (after,) = [r for r in base.cudnn if SpecifierSet(r.cudnn).contains("9.13.0.50")]
    assert after.cc_min == "7.5"


def test_the_generated_driver_constraint_is_nvidias(base: Knowledge) -> None:
    """Text of a real image's environment (13.0.2), and the shape of older ones."""
    tags = {t.tag: t for t in base.base_tags}
    text = tags["13.0.2-cudnn-devel-ubuntu24.04"].require
    assert text is not None
    assert text.startswith("cuda>=13.0 brand=unknown,driver>=535,driver<536 brand=grid,driver>=535,driver<536 ")
    assert text.endswith("brand=cloudgaming,driver>=575,driver<576")
    assert text.count("brand=") == 5 * 12
    assert "geforce" not in text
    older = tags["12.4.1-base-ubuntu22.04"].require or ""
    assert "brand=geforce,driver>=535,driver<536" in older


def test_base_tags(base: Knowledge) -> None:
    tags = {t.tag: t for t in base.base_tags}
    assert tags["12.4.1-cudnn-runtime-ubuntu22.04"].cudnn == "9.1.0.70"
    assert not tags["12.4.1-cudnn-runtime-ubuntu22.04"].deleted
    assert tags["10.2-base-ubuntu18.04"].deleted
    assert tags["8.0-cudnn5-devel-ubuntu14.04"].deleted
    assert "12.8.2-cudnn-runtime-ubuntu22.04" not in tags
    assert "12.4.1-cudnn8-runtime-ubuntu22.04" not in tags
    assert tags["11.3.1-cudnn8-runtime-ubuntu18.04"].end_of_life == "unsupported"
    assert {t.os for t in base.base_tags} <= set(base.oses)
    assert len(tags) == len(base.base_tags)


def test_images(base: Knowledge) -> None:
    named = {f"{i.repository}:{i.tag}": i for i in base.images}
    assert len(named) == len(base.images)
    assert named["nvcr.io/nvidia/pytorch:23.10-py3"].base_cuda == "12.2"
    assert named["pytorch/pytorch:1.10.0-cuda11.3-cudnn8-devel"].frameworks == {"torch": "1.10.0"}
    for image in base.images:
        assert image.os is None or image.os in base.oses, image


def test_operating_systems(base: Knowledge) -> None:
    assert base.glibc_of_os("ubuntu22.04") == "2.35"
    assert base.python_of_os("ubuntu22.04") == "3.10"
    assert base.glibc_of_os("centos:7") == "2.17"
    assert base.glibc_of_os("bookworm") == "2.36"
    assert base.os("plan9") is None
    assert base.os_eol["centos7"] == "2024-06-30"


@pytest.mark.parametrize(
    ("name", "version", "want", "cuda"),
    [
        ("torch", "2.6.0", {"default": True, "machine": "x86_64"}, "12.4"),
        ("torch", "2.7.1", {"default": True, "machine": "x86_64"}, "12.6"),
        ("torch", "1.12.1", {"default": True, "machine": "x86_64"}, "10.2"),
        ("torch", "1.8.2", {"local": "cu111"}, "11.1"),
        ("torch", "2.9.1", {"local": "cu130", "machine": "aarch64"}, "13.0"),
        ("tensorflow", "2.16.1", {"extra": "and-cuda"}, "12.3"),
        ("tensorflow-gpu", "2.10.0", {}, "11.2"),
        ("tensorflow-gpu", "1.15.0", {}, "10.0"),
        ("paddlepaddle-gpu", "2.4.2.post112", {}, "11.2"),
        ("paddlepaddle-gpu", "2.1.1", {"index": "pypi"}, "10.2"),
        ("onnxruntime-gpu", "1.18.0", {"index": "pypi"}, "11.8"),
        ("onnxruntime-gpu", "1.18.0", {"index": "onnxruntime"}, "12.2"),
        ("vllm", "0.6.3", {"index": "pypi"}, "12.1"),
        ("jax", "0.6.2", {"extra": "cuda12"}, "12.8"),
        ("ctranslate2", "4.4.0", {"machine": "x86_64"}, "12"),
    ],
)
def test_known_builds(base: Knowledge, name: str, version: str, want: dict[str, object], cuda: str) -> None:
    assert build(base, name, version, **want).wheel_cuda == cuda


def test_numpy_abi_is_recorded(base: Knowledge) -> None:
    assert "numpy<2" in build(base, "torch", "2.2.2", default=True, machine="x86_64").requires
    assert "numpy<2" not in build(base, "torch", "2.3.0", default=True, machine="x86_64").requires
    assert any("numpy<2" in b.requires for b in base.builds("mindspore", "2.10.0"))


def test_cxx11_abi_is_recorded(base: Knowledge) -> None:
    assert build(base, "torch", "2.5.1", default=True, machine="x86_64").cxx11_abi is False
    assert build(base, "torch", "2.6.0", local="cu126", machine="x86_64").cxx11_abi is True
    assert build(base, "torch", "2.7.0", default=True, machine="x86_64").cxx11_abi is True


def test_companions_pin_their_torch(base: Knowledge) -> None:
    for name, version, torch in [
        ("torchvision", "0.13.0", "torch==1.12.0"),
        ("torchvision", "0.14.1", "torch==1.13.1"),
        ("torchvision", "0.20.1", "torch==2.5.1"),
        ("torchaudio", "2.0.2", "torch==2.0.1"),
        ("xformers", "0.0.28.post3", "torch==2.5.1"),
    ]:
        for row in base.companions(name):
            if row.version == version and row.machine == "x86_64":
                assert torch in row.requires, row


def test_an_unknown_name_or_version_has_no_rows(base: Knowledge) -> None:
    assert base.builds("no-such-framework") == ()
    assert base.builds("torch", "9.9.9") == ()
    assert base.builds("pytorch", "2.5.1") == base.builds("torch", "2.5.1")
    assert base.builds("torch", "2.5") == base.builds("torch", "2.5.0")


def test_loading_is_fast_and_small() -> None:
    started = time.perf_counter()
    base = Knowledge()
    base.builds("torch", "2.5.1")
    assert base.gpus
    assert base.toolkits
    assert time.perf_counter() - started < 0.5  # 0.1 s measured; the rest is for a busy machine
    assert sum(p.stat().st_size for p in DATA.rglob("*") if p.is_file()) < 5_000_000


def test_load_gives_one_shared_base() -> None:
    assert load() is load()
