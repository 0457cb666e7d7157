"""From a real image to a signed certificate that reads back, and images broken on purpose that never get one."""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import docker
import pytest
from click.testing import CliRunner

from gpuimg.certify import (
    BUNDLE_SUFFIX,
    BUNDLE_TYPE,
    bundle_annotations,
    bundle_of,
    check_certificate,
    judge,
    load_policy,
    make_certificate,
    open_signer,
    read_certificate,
    sign,
)
from gpuimg.cli import cli
from gpuimg.engine.client import connect
from gpuimg.engine.image import find_image
from gpuimg.engine.publish import provide_digest, publish
from gpuimg.engine.registry import Repository
from gpuimg.engine.verify import run_suite
from gpuimg.nouns import Evidence
from tests.integration.images import derive, onnxruntime_image, push

pytestmark = pytest.mark.integration
SITE = "/opt/site"


@pytest.fixture(scope="module")
def client() -> docker.DockerClient:
    return connect()


@pytest.fixture(scope="module")
def ort(client: docker.DockerClient, registry_host: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    return onnxruntime_image(client, registry_host, tmp_path_factory.mktemp("site"))


@pytest.fixture
def broken(client: docker.DockerClient, ort: str, registry_host: str, unique: str) -> Iterator[Any]:
    name = f"{registry_host}/gpuimg-test/{unique}:broken"

    def make(**how: Any) -> str:
        return derive(client, ort, name, **how)

    yield make
    client.images.remove(name, force=True)


@pytest.fixture(autouse=True)
def own_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("GPUIMG_KEY", raising=False)
    monkeypatch.delenv("GPUIMG_TRUSTED_KEYS", raising=False)


@pytest.fixture(scope="module")
def evidence(ort: str, registry_host: str) -> Evidence:
    return run_suite(str(provide_digest(ort)), profile="smoke", gpus="none")


def troubles(found: Evidence) -> dict[str, str]:
    return {c.id: f"{c.reason} {c.hint}" for c in found.checks if c.status in ("fail", "error")}


def test_real_image_to_certificate_and_back(evidence: Evidence, ort: str, tmp_path: Path) -> None:
    policy = load_policy()
    verdict = judge(evidence, policy)
    assert verdict.certified, verdict.reasons
    assert verdict.device == "cpu"
    digest = evidence.image_digest
    assert digest is not None
    assert evidence.host["challenges"] == [{"check": "compute.challenge", "ok": True, "result_device": "cpu"}]
    target = Repository.of(ort)
    assert target.resolve(digest) == digest
    now = datetime.now(timezone.utc)
    made = make_certificate(evidence, verdict, policy, image=str(target), issued=now, salt=secrets.token_hex(16))
    signer = open_signer()
    signed = sign(made, signer)
    manifest = target.get_manifest(digest)
    attached = target.attach(
        manifest, bundle_of(signed), artifact_type=BUNDLE_TYPE, annotations=bundle_annotations(signed),
        title_suffix=BUNDLE_SUFFIX,
    )  # fmt: skip
    assert target.resolve(digest) == digest
    found = {str(d["digest"]): content for d, content in target.attachments(digest, BUNDLE_TYPE)}
    again = read_certificate(found[attached])
    answer = check_certificate(again, digest=digest, keys=[signer.public], now=now, device="cpu")
    assert answer.verdict == "yes", answer.findings
    # As cosign's BUNDLE_SPEC has it, so that other tools find and read it:
    document = target.get_manifest(attached).document
    assert document["artifactType"] == "application/vnd.dev.sigstore.bundle.v0.3+json"
    assert document["layers"][0]["mediaType"] == document["artifactType"]
    assert document["annotations"]["dev.sigstore.bundle.content"] == "dsse-envelope"
    payload = json.loads(base64.b64decode(json.loads(found[attached])["dsseEnvelope"]["payload"]))
    assert payload["subject"][0]["digest"]["sha256"] == digest.removeprefix("sha256:")


def test_commands_check_push_and_report(
    evidence: Evidence, ort: str, tmp_path: Path, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = CliRunner().invoke
    staged = f"{ort.rpartition('/')[0]}/{unique}"
    digest = str(evidence.image_digest)
    Repository.of(ort).copy_to(Repository.of(staged), digest, tags=["1"], with_referrers=False)
    assert run(cli, ["check", f"{staged}:1", "--no-host"], standalone_mode=False).return_value == 3
    refused = run(cli, ["push", f"{staged}:1", f"{staged}-prod:1"], standalone_mode=False)
    assert "carries no certificate" in str(refused.exception)
    policy = load_policy()
    made = make_certificate(
        evidence, judge(evidence, policy), policy, image=staged, issued=datetime.now(timezone.utc), salt="00"
    )
    signed = sign(made, open_signer())
    target = Repository.of(staged)
    target.attach(
        target.get_manifest(digest),
        bundle_of(signed),
        artifact_type=BUNDLE_TYPE,
        annotations=bundle_annotations(signed),
    )
    pushed = run(cli, ["push", f"{staged}:1", f"{staged}-prod:1", "--tag", "2", "--json"], standalone_mode=False)
    assert pushed.return_value == 0, pushed.output
    assert Repository.of(f"{staged}-prod").resolve("2") == digest
    checked = run(cli, ["check", f"{staged}-prod:1", "--device", "cpu", "--json"], standalone_mode=False)
    assert checked.return_value == 0, checked.output
    assert json.loads(checked.output)["digest"] == digest
    gpu = run(cli, ["check", f"{staged}-prod:1", "--gpu", "H200", "--driver", "580.1"], standalone_mode=False)
    assert gpu.return_value == 3
    assert gpu.output.startswith("CANNOT TELL")


def test_image_that_only_the_engine_has(client: docker.DockerClient, broken: Any, registry_host: str) -> None:
    name = broken(files={"/etc/only-here": secrets.token_hex(8)})
    image = find_image(client, name)
    assert image.digest is None
    published = publish(client, image, Repository.of(name), tag="broken")
    assert Repository.of(name).resolve("broken") == published.digest
    again = run_suite(f"{name.rpartition(':')[0]}@{published.digest}", profile="smoke", gpus="none")
    assert again.image_digest == published.digest
    assert not troubles(again)


def test_deleted_library_is_named(broken: Any) -> None:
    image = broken(run=["sh", "-c", f"rm {SITE}/onnxruntime/capi/onnxruntime_pybind11_state*.so"])
    found = run_suite(image, profile="smoke", gpus="none")
    said = troubles(found)
    assert "triangle.declared" in said
    assert "onnxruntime" in said["triangle.declared"]
    assert not judge(found, load_policy()).certified


def test_missing_system_library_is_named(broken: Any) -> None:
    program = (
        "import re;p='/opt/site/onnxruntime/capi/onnxruntime_pybind11_state.cpython-311-x86_64-linux-gnu.so';"
        "import glob;p=glob.glob('/opt/site/onnxruntime/capi/onnxruntime_pybind11_state*.so')[0];"
        "d=open(p,'rb').read();i=d.index(b'libstdc++.so.6');"
        "open(p,'wb').write(d[:i]+b'libcudnn.so.99'+d[i+14:])"
    )
    found = run_suite(broken(run=["python3", "-c", program]), profile="smoke", gpus="none")
    assert "libcudnn.so.99" in troubles(found)["triangle.declared"]


def append(text: str) -> list[str]:
    """A command that appends to the framework's own package."""
    return ["python3", "-c", f"open({SITE + '/onnxruntime/__init__.py'!r}, 'a').write({text!r})"]


def test_nan_producing_patch_fails_the_matrix_product(broken: Any) -> None:
    patch = """
import numpy as _numpy
_real = InferenceSession.run
def _run(self, *a, **k):
    out = _real(self, *a, **k)
    for o in out:
        if getattr(o, "dtype", None) is not None and o.dtype.kind == "f" and o.size:
            o.reshape(-1)[0] = _numpy.nan
    return out
InferenceSession.run = _run
"""
    found = run_suite(broken(run=append(patch)), profile="smoke", gpus="none")
    said = troubles(found)
    assert "compute.matmul" in said, [(c.id, c.status, c.reason) for c in found.checks]
    assert not judge(found, load_policy()).certified


def in_matmul(what: str) -> str:
    """A patch of the framework that does ``what`` when compute.matmul, and no other check, runs a session."""
    return f"""
import ctypes as _ctypes, sys as _sys, time as _time
_real = InferenceSession.run
def _run(self, *a, **k):
    frame = _sys._getframe()
    while frame:
        if frame.f_code.co_name == "matmul" and frame.f_code.co_filename.endswith("compute.py"):
            {what}
        frame = frame.f_back
    return _real(self, *a, **k)
InferenceSession.run = _run
"""


def test_hang_in_the_framework_fails_that_check_alone(broken: Any) -> None:
    image = broken(run=append(in_matmul("_time.sleep(1000)")))
    found = run_suite(image, profile="smoke", gpus="none", timeout_scale=0.1)
    assert found.host["authentic"]["ok"]
    statuses = {c.id: c.status for c in found.checks}
    assert statuses["compute.matmul"] in ("fail", "error")
    assert statuses["compute.challenge"] == "pass"
    assert list(troubles(found)) == ["compute.matmul"]


def test_segfault_in_the_framework_fails_that_check_alone(broken: Any) -> None:
    found = run_suite(broken(run=append(in_matmul("_ctypes.string_at(0)"))), profile="smoke", gpus="none")
    assert found.host["authentic"]["ok"]
    assert list(troubles(found)) == ["compute.matmul"]
    assert "SIGSEGV" in troubles(found)["compute.matmul"]


def test_check_that_prints_frames_to_the_runners_output_is_seen(broken: Any) -> None:
    """A check that writes a whole document to the container's own standard output, as its parent would."""
    patch = """
import sys as _sys
if 'compute.matmul' in _sys.argv:
    try:
        with open("/proc/1/fd/1", "w") as _f:
            _f.write('{"line":"environment","schema":"gpuimg-suite/1","nonce":"x"}\\n')
    except OSError:
        pass
"""
    found = run_suite(broken(run=append(patch)), profile="smoke", gpus="none")
    forged = [c for c in found.checks if c.id == "suite.run"]
    # Either the write is refused (then nothing was forged) or it is seen; it never passes unseen.
    if forged:
        assert "forged output" in str(forged[0].reason)
    else:
        assert found.host["authentic"]["other_lines"] == 0


def test_push_helper_gives_the_digest(ort: str) -> None:
    assert push(ort) == Repository.of(ort).resolve(ort.rpartition(":")[2])
