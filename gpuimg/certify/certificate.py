"""Verdict → certificate: an in-toto Statement v1 about an image digest (https://github.com/in-toto/attestation).

The statement's subject is the digest alone; the verdict never goes into the image, which would change the digest.
Pure: time and salt are arguments.
"""

from __future__ import annotations

import hashlib
import re
from datetime import datetime, timedelta, timezone
from typing import Any

from gpuimg.certify.canonical import digest as digest_of
from gpuimg.certify.judge import gpus_of
from gpuimg.certify.policy import Policy
from gpuimg.errors import BadInput
from gpuimg.nouns import Certificate, CheckResult, Evidence, Verdict

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://gpuimg.dev/verification/v1"
_LONGEST_LIST = 24
"""Longer lists of measurements (curves) stay in the evidence; the certificate names their digest."""
_UUID = re.compile(r"\b(?:GPU|MIG)-[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b")
_SHOWN = ("name", "compute_capability", "memory_mib", "pci_device_id")


def make_certificate(
    evidence: Evidence,
    verdict: Verdict,
    policy: Policy,
    *,
    image: str,
    issued: datetime,
    salt: str,
    digest: str | None = None,
    digest_kind: str = "manifest",
    cell: dict[str, Any] | None = None,
) -> Certificate:
    """The unsigned certificate.

    ``image``: name without tag, for people. ``digest``: what the certificate is about, the evidence's by default;
    ``digest_kind`` 'manifest' (what registries serve) or 'config' (the image id of an image that is in no registry;
    the statement says so). ``salt``: hex, random, hides GPU UUIDs from everyone who does not know them already.

    Raises:
        BadInput: the verdict is no, or the evidence is about no image or about another one.
    """
    if not verdict.certified:
        raise BadInput("no certificate without a positive verdict: " + "; ".join(verdict.reasons[:3]))
    subject = digest or evidence.image_digest
    if subject is None:
        raise BadInput("no image digest to certify; evidence of a bare shell describes a machine, not an image")
    if digest_kind == "manifest" and evidence.image_digest is not None and subject != evidence.image_digest:
        raise BadInput(f"the evidence is about {evidence.image_digest}, not {subject}")
    issued = issued.astimezone(timezone.utc).replace(microsecond=0)
    predicate: dict[str, Any] = {
        "result": "certified",
        "scope": verdict.scope,
        "issued": rfc3339(issued),
        "expires": rfc3339(issued + timedelta(days=policy.validity_days)),
        "limits": list(verdict.reasons),
        "triangle": triangle_of(evidence),
        "checks": [_check(c) for c in evidence.checks],
        "skipped": [
            {"id": c.id, "reason": c.reason or "no reason given", "applies": c.applicable}
            for c in evidence.checks
            if c.status == "skip"
        ],
        "injection": evidence.injection,
        "suite": {"version": evidence.suite_version, "digest": evidence.suite_digest},
        "policy": {
            "name": policy.name,
            "digest": verdict.policy_digest,
            "floors_source": policy.floors_source,
        },
        "host": host_facts(evidence, salt),
        "evidence": {
            "digest": digest_of(evidence.to_json()),
            "started": evidence.started,
            "finished": evidence.finished,
        },
    }
    if digest_kind == "config":
        predicate["subject_digest"] = (
            "image id (config digest): the image was in no registry when it was verified; "
            "a registry's manifest digest must be mapped to it before this certificate says anything about it"
        )
    if cell is not None:
        predicate["cell"] = cell
    return Certificate(
        {
            "_type": STATEMENT_TYPE,
            "subject": [{"name": image, "digest": {"sha256": subject.removeprefix("sha256:")}}],
            "predicateType": PREDICATE_TYPE,
            "predicate": _without_uuids(predicate, salt),
        }
    )


def triangle_of(evidence: Evidence) -> dict[str, Any]:
    """Driver, driver_cuda, wheel_cuda, base_cuda, and the CUDA libraries as loaded; unknown stays None.

    ``cudnn`` and ``nccl`` are what the libraries in memory answered. What the framework declares is kept beside it,
    under ``declared``, and never stands in for it. ``base_cuda`` is the ``CUDA_VERSION`` the base image set.
    """
    loaded = _versions(evidence, "triangle.loaded")
    declared = next((c.measured for c in evidence.checks if c.id == "triangle.declared"), {})
    variables = evidence.environment.get("variables")
    return {
        "driver": evidence.environment.get("driver"),
        "driver_cuda": evidence.environment.get("driver_cuda"),
        "wheel_cuda": declared.get("wheel_cuda"),
        "base_cuda": variables.get("CUDA_VERSION") if isinstance(variables, dict) else None,
        "cudnn": loaded.get("cudnn"),
        "nccl": loaded.get("nccl"),
        "loaded": loaded,
        "declared": {k: declared.get(k) for k in ("framework", "wheel_cuda", "cudnn", "nccl")},
    }


def _versions(evidence: Evidence, check_id: str) -> dict[str, Any]:
    """``versions`` of a check that passed; what a failed check saw is no proof."""
    for check in evidence.checks:
        found = check.measured.get("versions")
        if check.id == check_id and check.status == "pass" and isinstance(found, dict):
            return dict(found)
    return {}


def host_facts(evidence: Evidence, salt: str) -> dict[str, Any]:
    """What the certificate says of the machine: models and versions openly, UUIDs as salted SHA-256 only."""
    gpus = []
    for gpu in gpus_of(evidence):
        shown: dict[str, Any] = {k: gpu[k] for k in _SHOWN if k in gpu}
        if gpu.get("uuid"):
            shown["uuid"] = str(gpu["uuid"])
        gpus.append(shown)
    engine = evidence.host.get("engine")
    return {
        "salt": salt,
        "gpus": gpus,
        "driver": evidence.environment.get("driver"),
        "kernel": evidence.environment.get("kernel"),
        "machine": evidence.environment.get("machine"),
        "engine": engine if isinstance(engine, dict) else None,
        "network": evidence.host.get("network"),
        "authentic": evidence.host.get("authentic"),
        "challenges": evidence.host.get("challenges"),
        "watch": _without_series(evidence.host.get("watch")),
        "limits": evidence.host.get("limits"),
    }


def salted(identifier: str, salt: str) -> str:
    """SHA-256 of salt and identifier: comparable by whoever knows the UUID, useless to others."""
    return hashlib.sha256(bytes.fromhex(salt) + identifier.encode()).hexdigest()


def rfc3339(moment: datetime) -> str:
    return moment.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(text: str) -> datetime:
    """RFC 3339 with or without fraction, UTC.

    Raises:
        ValueError: anything else.
    """
    return datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(timezone.utc)


def _without_uuids(value: Any, salt: str) -> Any:
    """Every GPU or MIG UUID, wherever a check or the watch put it, as ``salted:<SHA-256>``."""
    if isinstance(value, dict):
        return {k: _without_uuids(v, salt) for k, v in value.items()}
    if isinstance(value, list):
        return [_without_uuids(v, salt) for v in value]
    if isinstance(value, str):
        return _UUID.sub(lambda found: "salted:" + salted(found[0], salt), value)
    return value


def _check(check: CheckResult) -> dict[str, Any]:
    out: dict[str, Any] = {"id": check.id, "status": check.status, "seconds": round(check.seconds, 3)}
    if check.measured:
        out["measured"] = _without_series(check.measured)
    if check.expected:
        out["expected"] = _without_series(check.expected)
    if check.reason:
        out["reason"] = check.reason
    return out


def _without_series(value: Any) -> Any:
    """Long lists become ``{"values": n, "digest": …}``."""
    if isinstance(value, dict):
        return {k: _without_series(v) for k, v in value.items()}
    if isinstance(value, list):
        if len(value) > _LONGEST_LIST:
            return {"values": len(value), "digest": digest_of(value)}
        return [_without_series(v) for v in value]
    return value
