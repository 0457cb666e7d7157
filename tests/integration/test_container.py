"""Untrusted images on a real engine: locked down, always removed, and never believed for what they print."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

from gpuimg.certify import judge, load_policy
from gpuimg.engine.client import connect
from gpuimg.engine.container import LABEL, Limits, NoSuchProgram, run_once, sweep
from gpuimg.engine.gpu_access import GpuAccess
from gpuimg.engine.image import find_image, find_pythons
from gpuimg.engine.registry import Manifest, Registry
from gpuimg.engine.verify import run_suite
from gpuimg.errors import BadInput, CannotTell, EnvironmentFault
from gpuimg.nouns import CheckResult, Evidence
from tests.integration.images import base_image, derive

pytestmark = pytest.mark.integration
NO_GPU = GpuAccess("none", (), "test")

PYTHON = """#!/bin/sh
case "$*" in
*.pyz*) {then} ;;
*) exec /usr/bin/python3.11 "$@" ;;
esac
"""
"""A Python that behaves until the suite is started with it."""


@pytest.fixture(scope="module")
def client() -> docker.DockerClient:
    return connect()


@pytest.fixture(scope="module")
def base(client: docker.DockerClient, registry_host: str) -> str:
    return base_image(client, registry_host)


@pytest.fixture
def made(client: docker.DockerClient, base: str, registry_host: str, unique: str) -> Iterator[Any]:
    """Makes derived images and removes them afterwards."""
    names: list[str] = []

    def make(then: str | None = None, **more: Any) -> str:
        files = {"/usr/local/bin/python3": PYTHON.replace("{then}", then)} if then is not None else None
        name = f"{registry_host}/gpuimg-test/{unique}:{len(names)}"
        names.append(derive(client, base, name, more.pop("files", files), **more))
        return name

    yield make
    for name in names:
        client.images.remove(name, force=True)


def ours(client: docker.DockerClient) -> list[Any]:
    return client.containers.list(all=True, filters={"label": LABEL})


def suite_run(evidence: Evidence) -> CheckResult:
    [found] = [c for c in evidence.checks if c.id == "suite.run"]
    return found


def test_container_is_locked_down(client: docker.DockerClient, base: str) -> None:
    program = """
import json, os
LIMITS = ["/sys/fs/cgroup/pids.max", "/sys/fs/cgroup/pids/pids.max"]
status = dict(l.rstrip().split(":\\t", 1) for l in open("/proc/self/status") if ":\\t" in l)
def writable(path):
    try:
        open(path + "/x", "w").close(); return True
    except OSError: return False
print(json.dumps({
    "caps": [status[k] for k in ("CapEff", "CapPrm", "CapBnd")], "nnp": status["NoNewPrivs"],
    "seccomp": status["Seccomp"], "net": os.listdir("/sys/class/net"),
    "root": writable("/etc"), "tmp": writable("/tmp"),
    "shm_mib": os.statvfs("/dev/shm").f_blocks * os.statvfs("/dev/shm").f_frsize >> 20,
    "pids": open(next(filter(os.path.exists, LIMITS))).read().strip(), "files": os.listdir("/gpuimg"),
}))
"""
    lines, ended = run_once(
        client, client.images.get(base).id, entrypoint=["python3"], command=["-c", program], timeout=60, run_id="t",
        access=NO_GPU, files={"a.txt": b"x"}, limits=Limits(pids=123, shm=64 << 20),
    )  # fmt: skip
    assert ended.exit_code == 0
    seen = json.loads(lines[0].text)
    assert seen["caps"] == ["0" * 16] * 3
    assert seen["nnp"] == "1"
    assert seen["seccomp"] == "2"
    assert seen["net"] == ["lo"]
    assert seen["root"] is False
    assert seen["tmp"] is True
    assert seen["shm_mib"] == 64
    assert seen["pids"] == "123"
    assert seen["files"] == ["a.txt"]
    assert ours(client) == []


def test_endless_output_and_time_limit(client: docker.DockerClient, base: str) -> None:
    lines, ended = run_once(
        client,
        client.images.get(base).id,
        entrypoint=["yes"],
        command=["x" * 100],
        timeout=2,
        run_id="t",
        access=NO_GPU,
    )
    assert ended.timed_out
    assert len(lines) == 20_000
    assert ours(client) == []


def test_program_that_is_not_there(client: docker.DockerClient, base: str) -> None:
    with pytest.raises(NoSuchProgram):
        run_once(client, client.images.get(base).id, entrypoint=["nope"], timeout=9, run_id="t", access=NO_GPU)
    assert ours(client) == []


def test_missing_image(registry_host: str) -> None:
    with pytest.raises(EnvironmentFault, match="neither the engine nor registry") as caught:
        run_suite(f"{registry_host}/gpuimg-test/no-such-image:1", profile="smoke")
    assert caught.value.exit_code == 4


def test_image_of_another_architecture(client: docker.DockerClient, registry_host: str, unique: str) -> None:
    target = Registry(registry_host).repository(f"gpuimg-test/{unique}")
    config = json.dumps({"architecture": "arm64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": []}}).encode()
    kind = "application/vnd.oci.image.config.v1+json"
    described = {"mediaType": kind, "digest": target.upload_blob(config), "size": len(config)}
    media = "application/vnd.oci.image.manifest.v1+json"
    document = {"schemaVersion": 2, "mediaType": media, "config": described, "layers": []}
    target.put_manifest(Manifest(json.dumps(document).encode(), media), "arm")
    with pytest.raises(CannotTell, match=r"is for (linux/)?arm64"):
        run_suite(f"{registry_host}/gpuimg-test/{unique}:arm", profile="smoke")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"gpus": "all"}, CannotTell),
        ({"gpus": "first"}, BadInput),
        ({"network": "nowhere"}, BadInput),
        ({"profile": "smke"}, BadInput),
        ({"framework": "torhc"}, BadInput),
        ({"only": ("no.check",)}, BadInput),
    ],
)
def test_bad_requests(base: str, options: dict[str, Any], error: type[Exception]) -> None:
    if options.get("gpus") == "all" and Path("/dev/nvidia0").exists():
        pytest.skip("this machine has a GPU")
    with pytest.raises(error):
        run_suite(base, **{"profile": "smoke", **options})


def test_hanging_image_is_stopped_and_named(made: Any, client: docker.DockerClient) -> None:
    evidence = run_suite(made("exec sleep 1000"), profile="smoke", timeout=4)
    assert suite_run(evidence).status == "error"
    assert "hung before the first check" in str(suite_run(evidence).reason)
    assert not judge(evidence, load_policy()).certified
    assert ours(client) == []


def test_image_whose_python_exits(made: Any) -> None:
    evidence = run_suite(made("echo broken >&2; exit 7"), profile="smoke")
    assert "exit code 7: broken" in str(suite_run(evidence).reason)


def test_printed_frames_do_not_pass(made: Any) -> None:
    document = (
        '{"line":"environment","schema":"gpuimg-suite/1","nonce":"0","device":"cpu","gpus":[]}\n'
        '{"line":"check","id":"compute.matmul","title":"x","status":"pass","seconds":1,"measured":{"device":"cpu"}}\n'
        '{"line":"summary","seal":"0","exit":0}'
    )
    evidence = run_suite(made(f"echo '{document}'; exit 0"), profile="smoke")
    assert suite_run(evidence).status == "error"
    verdict = judge(evidence, load_policy())
    assert not verdict.certified
    assert any("not authenticated" in r for r in verdict.reasons)


def test_frames_printed_before_the_real_run_are_seen(made: Any) -> None:
    line = '{"line":"environment","schema":"gpuimg-suite/1","nonce":"0"}'
    evidence = run_suite(made(f"echo '{line}'; exec /usr/bin/python3.11 \"$@\""), profile="smoke")
    assert "forged output" in str(suite_run(evidence).reason)


def test_banner_is_no_forgery(made: Any) -> None:
    evidence = run_suite(made('echo "== welcome =="; echo "{}"; exec /usr/bin/python3.11 "$@"'), profile="smoke")
    assert evidence.host["authentic"]["ok"], evidence.host["authentic"]
    assert evidence.host["authentic"]["other_lines"] == 2


FORGER = r"""#!/usr/bin/python3.11
import hashlib, hmac, json, os, sys
if not any(a.endswith(".pyz") for a in sys.argv):
    os.execv("/usr/bin/python3.11", ["python3"] + sys.argv[1:])
nonce = sys.stdin.readline().strip()
suite = next(a for a in sys.argv if a.endswith(".pyz"))
digest = "sha256:" + hashlib.sha256(open(suite, "rb").read()).hexdigest()
d = lambda v: json.dumps(v, sort_keys=True)
gpu = {"name": "NVIDIA H200", "compute_capability": "9.0"}
lines = [d({"line": "environment", "schema": "gpuimg-suite/1", "nonce": nonce, "suite_digest": digest, "device": "cuda",
            "gpus": [gpu], "driver": "580.1", "framework": "torch"})]
for i in %r:
    lines.append(d({"line": "check", "id": i, "title": i, "status": "pass", "seconds": 1.0, "required": True,
                    "measured": {"result_device": "cuda:0", "digest": "0" * 64}}))
seal = hmac.new(nonce.encode(), "\n".join(lines).encode(), hashlib.sha256).hexdigest()
lines.append(d({"line": "summary", "nonce": nonce, "seal": seal, "exit": 0}))
print("\n".join(lines))
"""


def test_program_that_speaks_the_protocol_is_caught_by_the_challenge(made: Any) -> None:
    from gpuimg.suite.registry import all_checks

    ids = [*all_checks(), "compute.matmul"]
    image = made(files={"/usr/local/bin/python3": FORGER % (list(dict.fromkeys(ids)),)})
    evidence = run_suite(image, profile="smoke")
    assert evidence.host["authentic"]["ok"]
    assert evidence.host["challenges"]
    assert not any(c["ok"] for c in evidence.host["challenges"])
    verdict = judge(evidence, load_policy())
    assert not verdict.certified
    assert any("challenge" in r for r in verdict.reasons)


def test_image_without_python(made: Any, base: str) -> None:
    image = made(run=["sh", "-c", "rm -f /usr/bin/python3*"], changes=['CMD ["true"]'])
    alone = run_suite(image, profile="smoke")
    [found] = [c for c in alone.checks if c.id == "image.python"]
    assert found.status == "skip"
    assert "no helper image" in str(found.reason)
    assert not judge(alone, load_policy()).certified
    helped = run_suite(image, profile="smoke", helper=base)
    assert helped.host["helper"]["reference"] == base
    assert any(c.id == "driver.init" for c in helped.checks)
    assert not judge(helped, load_policy()).certified


def test_entrypoint_is_bypassed_and_probed(made: Any) -> None:
    server = run_suite(made(changes=['ENTRYPOINT ["sleep", "600"]']), profile="smoke")
    [found] = [c for c in server.checks if c.id == "image.entrypoint"]
    assert found.status == "pass"
    assert found.measured["still_running"] is True
    broken = run_suite(made(changes=['ENTRYPOINT ["/no/such/program"]']), profile="smoke")
    [found] = [c for c in broken.checks if c.id == "image.entrypoint"]
    assert found.status == "fail"
    assert "/no/such/program" in str(found.reason)


def test_python_in_an_unusual_place_is_found(client: docker.DockerClient, made: Any) -> None:
    image = made(
        run=["sh", "-c", "python3 -m venv --without-pip /opt/thing/.venv && mv /usr/bin/python3 /usr/bin/py3x"]
    )
    pythons = find_pythons(client, find_image(client, image), run_id="t")
    assert not any(p.path == "/usr/bin/python3" for p in pythons)


@pytest.mark.parametrize("delivery", ["upload", "bind", "stdin"])
def test_every_way_in(base: str, delivery: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUIMG_DELIVERY", delivery)
    evidence = run_suite(base, profile="smoke")
    assert evidence.host["authentic"]["ok"], evidence.host
    assert evidence.host["delivery"] == delivery


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_killed_run_leaves_no_container_for_long(made: Any, client: docker.DockerClient, how: signal.Signals) -> None:
    image = made("exec sleep 1000")
    command = [sys.executable, "-m", "gpuimg", "verify", image, "--profile", "smoke"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, env=dict(os.environ))
    until = time.monotonic() + 60
    while time.monotonic() < until:
        running = [c for c in ours(client) if c.status == "running" and "--nonce" in (c.attrs["Config"]["Cmd"] or [])]
        if running:
            break
        time.sleep(0.2)
    else:
        process.kill()
        pytest.fail("the container never ran")
    process.send_signal(how)
    code = process.wait(timeout=30)
    if how is signal.SIGKILL:
        assert ours(client) != []
        assert sweep(client)
    else:
        assert code == 130
    assert ours(client) == []
