"""Pure rules of the suite on recorded and generated facts, beyond the planted-fault table."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuimg.suite import fatbin, judge_curve, judge_host, judge_sweep, judge_versions
from gpuimg.suite.cards import by_name, by_pci, driver_tables, row_of, table
from gpuimg.suite.checks_card import find_xids
from gpuimg.suite.checks_dist import slowest_rank
from gpuimg.suite.checks_triangle import PIN, versions_of
from gpuimg.suite.judge_versions import coverage, driver_path, group_maps, require

ROOT = Path(__file__).resolve().parents[2]


def test_cards_are_fresh() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "bin/update_suite_cards"), "--check"], capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()


def test_checks_doc_is_fresh() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "bin/update_checks_doc"), "--check"], capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()


def test_cards_are_usable() -> None:
    assert len(table()) > 50
    h200 = by_name("NVIDIA H200")
    assert h200 is not None
    assert (h200["sm_count"], h200["pci_ids"], h200["busbw_floor_gbs"]) == (132, ["2335"], {"8": 431})
    assert by_name("GeForce RTX 4090") == by_name("NVIDIA GeForce RTX 4090")
    assert row_of({"pci_device_id": "2335", "name": "NVIDIA H200"}) == h200
    assert row_of({"pci_device_id": "ffff", "name": "Nothing"}) is None
    shared = by_pci("25B6")
    assert {r["name"] for r in shared} == {"NVIDIA A2", "NVIDIA A16"}
    assert row_of({"pci_device_id": "25B6", "name": "NVIDIA A16"})["name"] == "NVIDIA A16"  # type: ignore[index]


@pytest.mark.parametrize(
    ("wheel", "driver", "driver_cuda", "more", "path"),
    [
        ("13.0", "580.159.04", "13.0", {}, "native"),
        ("12.4", "550.54.14", "12.4", {}, "native"),
        ("12.6", "550.54.14", "12.4", {}, "minor"),
        ("12.8", "525.60.13", "12.0", {}, "minor"),
        ("12.8", "520.61.05", "11.8", {}, "fail"),
        ("11.8", "450.80.02", "11.0", {}, "minor"),
        ("13.0", "550.54.14", "13.0", {"forward": True, "data_centre": True}, "forward"),
        ("13.0", "550.54.14", "13.0", {"forward": True, "data_centre": False}, "fail"),
        ("12.8", "535.54.03", "12.8", {"forward": True, "data_centre": True}, "forward"),
        ("12.8", "535.54.03", "12.8", {"forward": True, "data_centre": False}, "fail"),
        (None, "550.54.14", "12.4", {}, "unknown"),
        ("12.4", None, None, {}, "unknown"),
        ("99.0", "550.54.14", "12.4", {}, "unknown"),
    ],
)
def test_driver_path(wheel: Any, driver: Any, driver_cuda: Any, more: dict[str, Any], path: str) -> None:
    assert driver_path(wheel, driver, driver_cuda, driver_tables(), **more).path == path


REAL = (
    "cuda>=13.0 brand=unknown,driver>=535,driver<536 brand=tesla,driver>=550,driver<551 "
    "brand=nvidia,driver>=570,driver<571"
)


@pytest.mark.parametrize(
    ("facts", "answer"),
    [
        ({"cuda": "13.0", "driver": "580.159.04", "brand": "nvidia"}, True),
        ({"cuda": "12.8", "driver": "570.86.10", "brand": "nvidia"}, True),
        ({"cuda": "12.8", "driver": "570.86.10", "brand": "geforce"}, False),
        ({"cuda": "12.4", "driver": "550.54.14", "brand": "tesla"}, True),
        ({"cuda": None, "driver": "550.54.14", "brand": "geforce"}, None),
    ],
)
def test_require(facts: dict[str, Any], answer: Any) -> None:
    assert require(REAL, facts)[0] is answer


@pytest.mark.parametrize(
    ("card", "code", "how"),
    [
        ("9.0", ["sm_80", "sm_90"], "native"),
        ("8.9", ["sm_80", "sm_86"], "native"),
        ("8.0", ["sm_86"], "none"),
        ("9.0", ["sm_90a"], "native"),
        ("10.0", ["sm_90", "compute_90"], "ptx"),
        ("12.0", ["sm_100"], "none"),
        ("12.1", ["sm_120f"], "native"),
        ("10.0", ["compute_90a"], "none"),
        ("7.0", ["compute_75"], "none"),
        ("?", ["sm_90"], "unknown"),
    ],
)
def test_coverage(card: str, code: list[str], how: str) -> None:
    assert coverage(card, code)[0] == how


def test_common_code_is_not_the_union() -> None:
    counts = {"sm_75": 476, "sm_90": 476, "sm_90a": 12, "sm_89": 3, "sm_120": 470}
    assert judge_versions.common_code(counts) == ["sm_120", "sm_75", "sm_90"]
    assert judge_versions.common_code({}) == []


@given(st.text(alphabet="0123456789.+-abc", max_size=12), st.text(alphabet="0123456789.", max_size=12))
def test_versions_never_raise(a: str, b: str) -> None:
    judge_versions.at_least(a, b)
    assert judge_versions.at_least(a, a)


def test_maps_are_grouped() -> None:
    maps = (
        "7f00-7f01 r-xp 0 08:01 1 /site/nvidia/cudnn/lib/libcudnn.so.9\n"
        "7f01-7f02 r--p 0 08:01 1 /site/nvidia/cudnn/lib/libcudnn.so.9\n"
        "7f02-7f03 r-xp 0 08:01 2 /site/nvidia/cudnn/lib/libcudnn_ops.so.9\n"
        "7f03-7f04 r-xp 0 08:01 3 /lib/x86_64-linux-gnu/libc.so.6\n"
        "7f04-7f05 r-xp 0 08:01 4 /usr/local/cuda/lib64/libcublasLt.so.12 (deleted)\n"
        "7f05-7f06 rw-p 0 00:00 0 [heap]\n"
    )
    assert group_maps(maps) == {
        "cublasLt": ["/usr/local/cuda/lib64/libcublasLt.so.12"],
        "cudnn": ["/site/nvidia/cudnn/lib/libcudnn.so.9", "/site/nvidia/cudnn/lib/libcudnn_ops.so.9"],
    }


def test_a_newer_cudnn_is_noted_and_not_a_fault() -> None:
    found, notes = judge_versions.loaded_problems({}, {"cudnn": "9.19.0"}, {"cudnn": "9.14.0.64"})
    assert found == []
    assert "newer" in notes[0]


def test_libraries_that_do_not_answer_are_named() -> None:
    versions, unanswered = versions_of({"cudnn": ["/nowhere/libcudnn.so.9"]})
    assert versions == {}
    assert "cudnn" in unanswered


@pytest.mark.parametrize(
    ("line", "want"),
    [
        ("nvidia-cudnn-cu12==9.1.0.70", ("nvidia-cudnn", "9.1.0.70")),
        ("nvidia-nccl-cu13==2.28.9 ", ("nvidia-nccl", "2.28.9")),
        ("nvidia-cudnn-cu12 (==8.9.2.26) ", ("nvidia-cudnn", "8.9.2.26")),
        ("numpy>=1.20", None),
    ],
)
def test_pins(line: str, want: Any) -> None:
    found = PIN.match(line)
    assert (found.groups() if found else None) == want


# --- fat binaries -----------------------------------------------------------------------------------------------------


def container(*entries: tuple[int, int, int]) -> bytes:
    body = b""
    for kind, target, flags in entries:
        header = bytearray(64)
        struct.pack_into("<HHIQ", header, 0, kind, 0x101, 64, 8)
        struct.pack_into("<I", header, 28, target)
        struct.pack_into("<Q", header, 40, flags)
        body += bytes(header) + b"payload!"
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def test_fatbin_scan(tmp_path: Path) -> None:
    data = b"\x7fELF" + b"\0" * 100
    data += (
        container((2, 80, 0), (2, 90, 0x100000), (1, 90, 0)) + b"junk" + container((2, 80, 0x8000), (2, 120, 0x200000))
    )
    data += struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 1 << 50)  # a header that lies about its size
    assert fatbin.scan_bytes(data) == {"sm_80": 2, "sm_90a": 1, "compute_90": 1, "sm_120f": 1}
    file = tmp_path / "libx.so.1"
    file.write_bytes(data)
    (tmp_path / "link.so").symlink_to(file)
    (tmp_path / "empty.so").write_bytes(b"")
    assert fatbin.scan_file(file) == fatbin.scan_bytes(data)
    assert fatbin.scan_file(tmp_path / "empty.so") == {}
    assert len(fatbin.libraries([str(tmp_path)], smallest=1)) == 1


@given(st.binary(max_size=400))
def test_fatbin_scan_survives_anything(noise: bytes) -> None:
    fatbin.scan_bytes(b"\x50\xed\x55\xba" + noise)
    fatbin.scan_bytes(container((2, 80, 0)) + b"\x50\xed\x55\xba\x01\x00\x10\x00" + noise)


# --- curves and sweeps ------------------------------------------------------------------------------------------------


def test_the_recorded_curve_is_summarised() -> None:
    rows = json.loads((ROOT / "tests/data/suite/h200-curve-bf16-matmul.json").read_text())
    facts = judge_curve.summary(judge_curve.cut(rows, 2.4, 14.4))
    assert facts["reasons"]["sw_power_cap"] > 0.9
    assert facts["util_percent"]["mean"] > 97
    assert 680 < facts["power_w"]["median"] <= 700
    assert facts["sm_mhz"]["median"] < 0.8 * 1980


def test_too_few_samples_are_not_judged() -> None:
    with pytest.raises(ValueError, match="too few"):
        judge_curve.curve_problems([{"t": 0, "util": 100}])


def _training(**changes: Any) -> list[dict[str, Any]]:
    """Two seconds of a small net: busy a third of the time, clocks that rise and fall."""
    return [{"t": i / 5, "util": 20 + i, "sm": 1980 - 90 * i, "w": 150, "thr": 0, **changes} for i in range(10)]


def test_training_of_a_small_net_need_not_fill_the_gpu() -> None:
    limits = {"power_limit_w": 700.0, "sm_clock_max_mhz": 1980.0}
    assert judge_curve.curve_problems(_training(), full=False, **limits) == []
    assert judge_curve.curve_problems(_training(), **limits)


@pytest.mark.parametrize(
    ("changes", "what"),
    [({"util": 0}, "never busy"), ({"thr": 0x40}, "hw_thermal_slowdown")],
)
def test_training_that_ran_elsewhere_or_hot_is_a_fault(changes: dict[str, int], what: str) -> None:
    (problem,) = judge_curve.curve_problems(_training(**changes), full=False)
    assert what in problem.what


def test_bus_bandwidth_is_nccl_tests() -> None:
    assert judge_sweep.bus_bandwidth(10**9, 1.0, 8) == pytest.approx(1.75)
    assert judge_sweep.bus_bandwidth(10**9, 1.0, 2) == pytest.approx(1.0)


def test_a_collective_ends_with_its_slowest_rank() -> None:
    assert slowest_rank([{"8": [1.0, 2.0]}, {"8": [1.5, 0.5]}]) == {8: [1.5, 2.0]}


def test_pairs_need_company() -> None:
    assert judge_sweep.pair_problems({"0-1": 1.0}) == []


# --- host ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("facts", "container_kind", "machine"),
    [
        ({"release": "6.18.44-fc-v180-gpu"}, None, "firecracker"),
        ({"release": "4.4.0", "version": "Linux version 4.4.0"}, None, "gvisor"),
        ({"release": "5.15.0", "files": "/.dockerenv", "vendor": "QEMU"}, "docker", "kvm"),
        ({"release": "5.15.0", "cgroup": "0::/kubepods/besteffort/x", "vendor": "Amazon EC2"}, "kubernetes", "kvm"),
        ({"release": "5.15.0", "environ1": "container=lxc "}, "lxc", None),
        ({"release": "5.15.0", "files": "/run/.containerenv"}, "podman", None),
        ({"release": "5.15.90.1-microsoft-standard-WSL2", "version": "microsoft WSL"}, None, "wsl2"),
        ({"release": "6.1.0", "vendor": "Supermicro"}, None, None),
    ],
)
def test_sandbox(facts: dict[str, str], container_kind: Any, machine: Any) -> None:
    assert judge_host.sandbox_kind(facts) == {"container": container_kind, "machine": machine}


@pytest.mark.parametrize(
    ("variables", "mounts", "contained", "mode"),
    [
        ({"NVIDIA_VISIBLE_DEVICES": "void"}, "", True, "cdi"),
        ({"NVIDIA_VISIBLE_DEVICES": "all"}, "36 35 0:5 / /proc/driver/nvidia rw - tmpfs tmpfs rw", True, "legacy"),
        ({}, "36 35 0:5 / /usr/lib/libcuda.so.580 ro - ext4", True, "mounted"),
        ({}, "", True, "none"),
        ({"NVIDIA_VISIBLE_DEVICES": "all"}, "", False, "bare"),
    ],
)
def test_injection(variables: dict[str, str], mounts: str, contained: bool, mode: str) -> None:
    assert judge_host.injection_mode(variables, mounts, contained) == mode


def test_xids_are_found_with_their_card() -> None:
    log = "6,1,2,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus.\nNVRM: loading"
    assert find_xids(log) == [("0000:3b:00", 79)]


# --- the distributed checks, with recorded answers instead of ranks ---------------------------------------------------


def several(monkeypatch: pytest.MonkeyPatch, count: int, answers: dict[str, Any], trouble: str | None = None) -> Any:
    """A context with ``count`` H200s, whose process groups answer from ``answers`` by task."""
    from gpuimg.suite import checks_dist
    from gpuimg.suite.registry import Context

    def group(ctx: Any, world: int, job: dict[str, Any], limit: float) -> tuple[list[Any], str | None]:
        assert world == count
        return answers[job["task"]], trouble

    monkeypatch.setattr(checks_dist, "run_group", group)
    gpu = {"name": "NVIDIA H200", "pci_device_id": "2335", "memory_mib": 143771}
    facts = {"gpus": [{**gpu, "index": i} for i in range(count)]}
    return Context("dist.busbw", "full", {}, "torch", "cuda", ROOT, "n", 1e12, facts=facts)


def sweep_answers(ranks: int, peak: float) -> list[Any]:
    times = {}
    for power in range(11):
        size = (1 << 20) << power
        base = 20e-6 + size * 2 * (ranks - 1) / ranks / (peak * 1e9)
        times[str(size)] = [base * (1 + 0.005 * (i % 3)) for i in range(20)]
    return [{"times": times} for _ in range(ranks)]


def pair_answers(ranks: int, slow: str | None = None) -> list[Any]:
    names = [f"{a}-{b}" for a in range(ranks) for b in range(a + 1, ranks)]
    return [{"pairs": {name: [0.02 if name == slow else 0.001] * 10 for name in names}}]


def test_busbw_of_eight_healthy_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    from gpuimg.suite.checks_dist import dist_busbw

    ctx = several(monkeypatch, 8, {"sweep": sweep_answers(8, 470.0), "pairs": pair_answers(8)})
    out = dist_busbw(ctx)
    assert (out.status, out.reason) == ("pass", None)
    assert out.expected["gbs_at_least"] == 431
    assert len(out.measured["sweep"]) == 11
    assert len(out.measured["pairs_gbs"]) == 28


def test_busbw_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    from gpuimg.suite.checks_dist import dist_busbw

    slow = several(monkeypatch, 8, {"sweep": sweep_answers(8, 470.0), "pairs": pair_answers(8, "2-5")})
    assert "GPUs 2-5" in str(dist_busbw(slow).reason)
    low = several(monkeypatch, 8, {"sweep": sweep_answers(8, 40.0), "pairs": pair_answers(8)})
    assert "431 is the floor" in str(dist_busbw(low).reason)
    hung = several(monkeypatch, 8, {"sweep": []}, "rank 3: no answer in 100 s: NCCL WARN P2P is disabled")
    out = dist_busbw(hung)
    assert out.status == "fail"
    assert "NCCL_P2P_DISABLE" in str(out.hint)


def test_two_gpus_have_no_published_floor(monkeypatch: pytest.MonkeyPatch) -> None:
    from gpuimg.suite.checks_dist import dist_busbw

    out = dist_busbw(several(monkeypatch, 2, {"sweep": sweep_answers(2, 300.0)}))
    assert out.status == "pass"
    assert "no published floor" in str(out.reason)


def test_all_gpus_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from gpuimg.suite.checks_dist import dist_together

    def load(*rates: float) -> dict[str, Any]:
        return {"load": [{"tflops": rate, "window": [10.0, 15.0 + i / 10]} for i, rate in enumerate(rates)]}

    ctx = several(monkeypatch, 4, load(760, 770, 765, 768))
    assert dist_together(ctx).status == "pass"
    assert ctx.busy_windows[0]["end"] - ctx.busy_windows[0]["start"] == pytest.approx(5.0)
    out = dist_together(several(monkeypatch, 4, load(760, 770, 500, 768)))
    assert "GPU 2" in str(out.reason)


def test_one_gpu_says_what_was_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    from gpuimg.suite.checks_dist import dist_init
    from gpuimg.suite.dist_workers import compare, contribution

    answer = {"results": compare(1, {"all_reduce": contribution(0), "broadcast": contribution(0)})}
    out = dist_init(several(monkeypatch, 1, {"exact": [answer]}))
    assert out.status == "pass"
    assert "bandwidth were not measured" in str(out.reason)
