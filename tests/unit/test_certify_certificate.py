"""Certificates: what they state, that signatures bind, and what checking them against a host answers."""

from __future__ import annotations

import base64
import hashlib
import json
import stat
import subprocess
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from gpuimg.certify import (
    PREDICATE_TYPE,
    bundle_of,
    check_certificate,
    judge,
    load_public,
    make_certificate,
    open_signer,
    read_certificate,
    sign,
)
from gpuimg.certify.canonical import canonical
from gpuimg.certify.signing import Signer, pre_authentication, signed_by
from gpuimg.errors import BadInput
from gpuimg.nouns import Certificate, Gpu, Host
from tests.unit.test_certify_judge import GOOD, GOOD_GPU, POLICY, UUID, check, evidence

NOW = datetime(2026, 12, 1, 12, tzinfo=timezone.utc)
DIGEST = "sha256:" + "1" * 64
H200 = Host(gpus=(Gpu("NVIDIA H200", compute_capability="9.0"),), driver="580.82.07")


@pytest.fixture
def signer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Signer:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.delenv("GPUIMG_KEY", raising=False)
    return open_signer()


def unsigned(*, gpu: bool = True, **more: Any) -> Certificate:
    found = evidence(*(GOOD_GPU if gpu else GOOD), gpu=gpu)
    found = type(found)(**{**found.__dict__, "image_digest": DIGEST})
    options: dict[str, Any] = {"image": "r.example/x", "issued": NOW, "salt": "00" * 16, **more}
    return make_certificate(found, judge(found, POLICY), POLICY, **options)


def answer(certificate: Certificate, signer: Signer, **more: Any) -> Any:
    options: dict[str, Any] = {"digest": DIGEST, "keys": [signer.public], "now": NOW, "host": H200, **more}
    return check_certificate(certificate, **options)


def test_statement_is_in_toto_about_the_digest_alone() -> None:
    statement = unsigned().statement
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == PREDICATE_TYPE
    assert statement["subject"] == [{"name": "r.example/x", "digest": {"sha256": "1" * 64}}]
    predicate = statement["predicate"]
    assert predicate["scope"]["gpus"] == ["NVIDIA H200"]
    assert predicate["expires"] == "2026-12-31T12:00:00Z"
    assert predicate["triangle"]["driver"] == "580.82.07"
    json.dumps(statement)


def test_uuids_appear_only_salted_wherever_they_were_measured() -> None:
    watch = {"available": True, "worked": True, "gpus": [{"uuid": UUID, "utilisation_percent": [1] * 100}]}
    found = evidence(*GOOD_GPU, check("card.identity", measured={"said": f"GPU 0: {UUID}"}), gpu=True, watch=watch)
    made = make_certificate(found, judge(found, POLICY), POLICY, image="x", issued=NOW, salt="00" * 16)
    text = json.dumps(made.statement)
    assert UUID not in text
    assert text.count(hashlib.sha256(bytes(16) + UUID.encode()).hexdigest()) == 3


def test_long_series_are_replaced_by_their_digest() -> None:
    found = evidence(*GOOD, check("mon.curve", measured={"watts": list(range(1000))}))
    made = make_certificate(found, judge(found, POLICY), POLICY, image="x", issued=NOW, salt="00")
    [curve] = [c for c in made.statement["predicate"]["checks"] if c["id"] == "mon.curve"]
    assert curve["measured"]["watts"]["values"] == 1000


def test_no_certificate_without_a_positive_verdict() -> None:
    found = evidence(*GOOD[1:])
    with pytest.raises(BadInput, match=r"compute\.matmul"):
        make_certificate(found, judge(found, POLICY), POLICY, image="x", issued=NOW, salt="00")


def test_no_certificate_for_another_digest() -> None:
    with pytest.raises(BadInput, match="the evidence is about"):
        unsigned(digest="sha256:" + "2" * 64)


def test_image_in_no_registry_is_certified_by_its_id_and_says_so() -> None:
    made = unsigned(digest="sha256:" + "2" * 64, digest_kind="config")
    assert "in no registry" in made.statement["predicate"]["subject_digest"]


def test_key_is_made_once_and_private(signer: Signer) -> None:
    path = Path(signer.origin)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert open_signer().public.id == signer.public.id
    assert load_public(path.with_suffix(".pub")).id == signer.public.id


def test_pre_authentication_encoding_is_dsse_s_example() -> None:
    # https://github.com/secure-systems-lab/dsse/blob/master/protocol.md
    encoded = pre_authentication("http://example.com/HelloWorld", b"hello world")
    assert encoded == b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"


def test_openssl_verifies_what_we_sign(signer: Signer, tmp_path: Path) -> None:
    made = sign(unsigned(), signer)
    assert made.envelope is not None
    payload = base64.b64decode(made.envelope["payload"])
    (tmp_path / "message").write_bytes(pre_authentication(made.envelope["payloadType"], payload))
    (tmp_path / "sig").write_bytes(base64.b64decode(made.envelope["signatures"][0]["sig"]))
    (tmp_path / "key.pub").write_bytes(signer.public.pem())
    command = ["openssl", "dgst", "-sha256", "-verify", "key.pub", "-signature", "sig", "message"]
    try:
        said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("no openssl")
    assert said.stdout.strip() == "Verified OK"


def test_bundle_round_trip(signer: Signer) -> None:
    made = sign(unsigned(), signer)
    document = json.loads(bundle_of(made))
    assert document["mediaType"] == "application/vnd.dev.sigstore.bundle.v0.3+json"
    assert document["verificationMaterial"]["publicKey"]["hint"] == signer.public.id
    assert len(document["dsseEnvelope"]["signatures"]) == 1
    again = read_certificate(bundle_of(made))
    assert again.statement == made.statement
    assert signed_by(again, [signer.public]) is not None


def test_ed25519_keys_work_too(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization as s
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    path = tmp_path / "key.pem"
    key = Ed25519PrivateKey.generate()
    path.write_bytes(key.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, s.NoEncryption()))
    signer = open_signer(path)
    assert answer(sign(unsigned(), signer), signer).verdict == "yes"


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"payload": "x"}', b"\xff", b'{"dsseEnvelope": 1}'])
def test_what_is_no_certificate_is_said_so(content: bytes) -> None:
    with pytest.raises(BadInput, match="not a certificate"):
        read_certificate(content)


def test_good_certificate_covers_its_host(signer: Signer) -> None:
    assert answer(sign(unsigned(), signer), signer).verdict == "yes"


def test_changed_statement_is_caught(signer: Signer) -> None:
    made = sign(unsigned(), signer)
    assert made.envelope is not None
    statement = json.loads(json.dumps(made.statement))
    statement["predicate"]["scope"]["gpus"] = ["NVIDIA GeForce RTX 4090"]
    envelope = {**made.envelope, "payload": base64.b64encode(canonical(statement)).decode()}
    for forged in (Certificate(statement, envelope), Certificate(statement, made.envelope)):
        found = answer(forged, signer)
        assert found.verdict == "no"
        assert any(f.rule == "signature" and f.verdict == "no" for f in found.findings)


def test_other_key_other_digest_expiry_and_missing_signature(signer: Signer, tmp_path: Path) -> None:
    made = sign(unsigned(), signer)
    path = tmp_path / "other.pem"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", str(path)], check=True, capture_output=True)
    assert answer(made, signer, keys=[load_public(path)]).verdict == "no"
    assert answer(made, signer, keys=[]).verdict == "unknown"
    assert answer(made, signer, digest="sha256:" + "2" * 64).verdict == "no"
    assert answer(made, signer, now=NOW + timedelta(days=31)).verdict == "no"
    assert answer(unsigned(), signer).verdict == "no"
    assert answer(made, signer, policy_digest="sha256:other").verdict == "no"


@pytest.mark.parametrize(
    ("host", "verdict"),
    [
        (Host(gpus=(Gpu("H200"),), driver="580.82.07"), "yes"),
        (Host(gpus=(Gpu("NVIDIA H200"),), driver="590.10"), "yes"),
        (Host(gpus=(Gpu("NVIDIA H200"),), driver="580.65.06"), "yes"),  # same branch, older: a warning
        (Host(gpus=(Gpu("NVIDIA H200"),), driver="570.86.10"), "unknown"),
        (Host(gpus=(Gpu("NVIDIA H200"),)), "unknown"),
        (Host(gpus=(Gpu("NVIDIA H200 NVL", compute_capability="9.0"),), driver="580.82.07"), "unknown"),
        (Host(gpus=(Gpu("NVIDIA GeForce RTX 4090"),), driver="580.82.07"), "unknown"),
        (Host(), "unknown"),
    ],
)
def test_hosts(signer: Signer, host: Host, verdict: str) -> None:
    assert answer(sign(unsigned(), signer), signer, host=host).verdict == verdict


def test_cpu_certificate_says_nothing_about_a_gpu_host(signer: Signer) -> None:
    made = sign(unsigned(gpu=False), signer)
    assert answer(made, signer).verdict == "unknown"
    assert answer(made, signer, device="cpu").verdict == "yes"
    assert answer(made, signer, host=Host()).verdict == "yes"
    assert answer(made, signer, host=Host(machine="aarch64")).verdict == "no"
