"""References, loopback rule, challenges, GPU access choice: the parts of the engine room that need no engine."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuimg.engine.container import Ended, _is_left_over, owner_mark
from gpuimg.engine.gpu_access import choose, parse_gpus
from gpuimg.engine.image import Python, choose_python, read_pythons
from gpuimg.engine.reference import parse_reference
from gpuimg.engine.registry import is_loopback, parse_challenge
from gpuimg.engine.verify import read_output
from gpuimg.engine.watch import worked
from gpuimg.errors import BadInput, CannotTell
from gpuimg.suite.document import seal, write_line

D = "sha256:" + "a" * 64


@pytest.mark.parametrize(
    ("text", "registry", "repository", "tag", "digest"),
    [
        ("debian", "docker.io", "library/debian", None, None),
        ("nvidia/cuda:12.4.1-base", "docker.io", "nvidia/cuda", "12.4.1-base", None),
        ("127.0.0.1:5000/a/b:c", "127.0.0.1:5000", "a/b", "c", None),
        ("localhost/x", "localhost", "x", None, None),
        (f"nvcr.io/nvidia/pytorch@{D}", "nvcr.io", "nvidia/pytorch", None, D),
        (f"r.example:443/x:1@{D}", "r.example:443", "x", "1", D),
        ("index.docker.io/library/x", "docker.io", "library/x", None, None),
    ],
)
def test_references(text: str, registry: str, repository: str, tag: str | None, digest: str | None) -> None:
    found = parse_reference(text)
    assert (found.registry, found.repository, found.tag, found.digest) == (registry, repository, tag, digest)
    assert parse_reference(str(found)) == found


@pytest.mark.parametrize("text", ["", "A/b", "x:", "x@sha256:12", "x:a b", "http://r/x", "-r.io/x", "r.io/", "x//y"])
def test_bad_references_are_named(text: str) -> None:
    with pytest.raises(BadInput):
        parse_reference(text)


@given(st.text(max_size=40))
def test_any_text_is_a_reference_or_bad_input(text: str) -> None:
    with contextlib.suppress(BadInput):
        assert str(parse_reference(text))


def test_plain_http_is_for_loopback_only() -> None:
    assert all(map(is_loopback, ("127.0.0.1:5000", "localhost", "127.9.9.9", "[::1]:5000")))
    assert not any(map(is_loopback, ("10.0.0.1:5000", "r.example", "localhost.example", "docker.io")))


def test_www_authenticate() -> None:
    scheme, values = parse_challenge('Bearer realm="https://auth/token",service="r",scope="repository:a:pull,push"')
    assert scheme == "bearer"
    assert values == {"realm": "https://auth/token", "service": "r", "scope": "repository:a:pull,push"}


def facts(**more: Any) -> dict[str, Any]:
    base = {
        "runtimes": ["runc"],
        "cdi_spec_dirs": ["/etc/cdi"],
        "cdi_devices": [],
        "local": True,
        "device_nodes": ["/d"],
    }
    return {**base, "hook": None, **more}


CDI = ["nvidia.com/gpu=all", "nvidia.com/gpu=0"]


@pytest.mark.parametrize(
    ("seen", "kind"),
    [
        (facts(cdi_devices=CDI), "cdi"),
        (facts(cdi_devices=CDI, runtimes=["nvidia", "runc"]), "cdi"),
        (facts(runtimes=["nvidia", "runc"]), "nvidia-runtime"),
        (facts(hook="/usr/bin/nvidia-container-runtime-hook"), "gpus"),
        (facts(), "none"),
        (facts(cdi_devices=CDI, device_nodes=[]), "none"),
        (facts(cdi_devices=CDI, local=False, device_nodes=[]), "cdi"),
    ],
)
def test_way_in_is_found_by_looking(seen: dict[str, Any], kind: str) -> None:
    access = choose(seen, ("all",))
    assert access.kind == kind
    assert access.reason
    assert len(access.rejected) == (2 if kind != "none" else 3)


def test_asked_for_and_not_there() -> None:
    with pytest.raises(CannotTell, match="no GPU to verify on"):
        choose(facts(), ("all",), asked=True)
    with pytest.raises(CannotTell, match="does not name 7"):
        choose(facts(cdi_devices=CDI), ("7",), asked=True)
    assert (
        choose(facts(runtimes=["nvidia"], cdi_devices=CDI), ("all",), forced="nvidia-runtime").kind == "nvidia-runtime"
    )
    assert choose(facts(cdi_devices=CDI), ("all",), forced="none").kind == "none"


def test_create_options() -> None:
    cdi = choose(facts(cdi_devices=CDI), ("0",)).create_options()["device_requests"][0]
    assert cdi["Driver"] == "cdi"
    assert cdi["DeviceIDs"] == ["nvidia.com/gpu=0"]
    runtime = choose(facts(runtimes=["nvidia"]), ("0", "1")).create_options()
    assert runtime == {"runtime": "nvidia", "environment": {"NVIDIA_VISIBLE_DEVICES": "0,1"}}
    assert choose(facts(), ("all",)).create_options() == {"environment": {"NVIDIA_VISIBLE_DEVICES": "void"}}


@pytest.mark.parametrize("text", ["", "first", "0,", "0 1", "GPU"])
def test_bad_gpu_lists(text: str) -> None:
    with pytest.raises(BadInput):
        parse_gpus(text)


def test_python_with_the_framework_is_preferred() -> None:
    lines = [
        "welcome",
        '{"path": "/usr/bin/python3", "version": [3, 12, 1], "modules": []}',
        '{"path": "/old", "version": [3, 6, 9], "modules": ["torch"]}',
        '{"path": "/opt/venv/bin/python", "version": [3, 11, 2], "modules": ["torch"]}',
        '{"path": "/opt/tf/bin/python", "version": [3, 11, 2], "modules": ["tensorflow"]}',
        '{"path": "/x", "broken": true}',
    ]
    pythons = read_pythons(lines)
    assert [p.path for p in pythons] == ["/usr/bin/python3", "/opt/venv/bin/python", "/opt/tf/bin/python"]
    assert choose_python(pythons, None) == pythons[1]
    assert choose_python(pythons, "tensorflow") == pythons[2]
    assert choose_python(pythons, "jax") == pythons[0]
    assert choose_python([], "jax") is None
    assert isinstance(pythons[0], Python)


def document(nonce: str = "n", exit_code: int = 0) -> list[str]:
    lines = [
        write_line("environment", {"schema": "gpuimg-suite/1", "nonce": nonce}),
        write_line("check", {"id": "a", "title": "a", "status": "pass", "seconds": 1.0}),
        write_line("check", {"id": "b", "title": "b", "status": "fail", "seconds": 1.0}),
    ]
    return [*lines, write_line("summary", {"seal": seal(nonce, lines), "exit": exit_code})]


GOOD_END = Ended(0, False, False, 1.0)


def test_whole_document_is_trusted() -> None:
    read = read_output(["banner", *document()], "n", GOOD_END)
    assert read.reason is None
    assert [c.status for c in read.checks] == ["pass", "fail"]
    assert read.noise == 1


@given(st.integers(0, 3), st.sampled_from(["drop", "repeat", "swap", "change", "append"]), st.integers(0, 3))
def test_any_tampering_shows(index: int, how: str, other: int) -> None:
    lines = document()
    if how == "drop":
        del lines[index]
    elif how == "repeat":
        lines.insert(other, lines[index])
    elif how == "swap":
        if index == other:
            return
        lines[index], lines[other] = lines[other], lines[index]
    elif how == "change":
        changed = lines[index].replace('"fail"', '"pass"').replace('"exit": 0', '"exit": 1').replace('"n"', '"m"')
        if changed == lines[index]:
            return
        lines[index] = changed
    else:
        lines.append(lines[index])
    assert read_output(lines, "n", GOOD_END).reason is not None


def test_wrong_nonce_exit_code_and_ends() -> None:
    assert read_output(document("other"), "n", GOOD_END).reason is not None
    assert "ended with 1" in str(read_output(document(), "n", Ended(1, False, False, 1.0)).reason)
    cut = document()[:2]
    assert "hung after a" in str(read_output(cut, "n", Ended(None, True, False, 9.0)).reason)
    assert "killed for memory after a" in str(read_output(cut, "n", Ended(137, False, True, 9.0)).reason)


def test_left_over_containers() -> None:
    mine = {"io.gpuimg.owner": owner_mark(), "io.gpuimg.deadline": "0"}
    assert not _is_left_over(mine, now=10.0, alive=lambda _: True)
    assert _is_left_over(mine, now=10.0, alive=lambda _: False)
    foreign = {"io.gpuimg.owner": "elsewhere:1:2", "io.gpuimg.deadline": "100"}
    assert not _is_left_over(foreign, now=99.0, alive=lambda _: False)
    assert _is_left_over(foreign, now=101.0, alive=lambda _: False)


def test_gpu_work_seen_from_outside() -> None:
    idle = {"container_memory_mib": None, "max_memory_mib": 5, "memory_before_mib": 5, "max_utilisation_percent": 0}
    assert not worked([idle])
    assert not worked([{**idle, "max_utilisation_percent": 90}])
    assert worked([idle, {**idle, "max_memory_mib": 900, "max_utilisation_percent": 90}])
    assert worked([{**idle, "container_memory_mib": 500}])
