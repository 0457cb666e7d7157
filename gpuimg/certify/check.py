"""Does this certificate hold, and does it cover this host? Pure: time, keys and host are arguments.

Answers are findings. The verdict is the worst of them: a broken signature, another digest or an expired certificate
is no; a host the certificate says nothing about (another GPU model, an older driver, facts missing) is unknown.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gpuimg.certify.certificate import PREDICATE_TYPE, STATEMENT_TYPE, parse_time
from gpuimg.certify.signing import PublicKey, signed_by
from gpuimg.nouns import Answer, Certificate, Finding, Host

SOURCE = PREDICATE_TYPE


@dataclass(frozen=True)
class CheckAnswer:
    """``verdict``: 'yes' (certified for this host), 'no', 'unknown'; a finding 'warn' does not change a yes."""

    verdict: Answer
    findings: tuple[Finding, ...]
    scope: dict[str, Any]
    expires: str | None

    def to_json(self) -> dict[str, Any]:
        return {
            "verdict": self.verdict,
            "scope": self.scope,
            "expires": self.expires,
            "findings": [f.to_json() for f in self.findings],
        }


def check_certificate(
    certificate: Certificate,
    *,
    digest: str,
    keys: list[PublicKey],
    now: datetime,
    host: Host | None = None,
    device: str | None = None,
    policy_digest: str | None = None,
) -> CheckAnswer:
    """Check one certificate.

    ``digest``: manifest digest of the image at hand. ``keys``: those trusted; with none the signature cannot be
    judged. ``host``: None checks the certificate only. ``device``: 'cpu' or 'cuda' as it will be used; by default
    'cuda' where the host has a GPU. ``policy_digest``: demand exactly that policy.
    """
    statement = certificate.statement
    predicate = statement.get("predicate")
    if statement.get("_type") != STATEMENT_TYPE or statement.get("predicateType") != PREDICATE_TYPE:
        kind = f"{statement.get('predicateType')!r} is not {PREDICATE_TYPE}"
        return CheckAnswer("no", (_finding("statement", "no", kind),), {}, None)
    if not isinstance(predicate, dict) or not isinstance(predicate.get("scope"), dict):
        return CheckAnswer("no", (_finding("statement", "no", "the predicate has no scope"),), {}, None)
    scope: dict[str, Any] = predicate["scope"]
    findings = [
        _signature(certificate, keys),
        _subject(statement, digest),
        _result(predicate),
        _expiry(predicate, now),
    ]
    if policy_digest is not None:
        found = (predicate.get("policy") or {}).get("digest")
        same: Answer = "yes" if found == policy_digest else "no"
        findings.append(_finding("policy", same, f"judged by policy {found}, wanted {policy_digest}"))
    if host is not None:
        findings += covers(scope, predicate.get("triangle") or {}, host, device)
    return CheckAnswer(_worst(findings), tuple(findings), scope, predicate.get("expires"))


def covers(scope: dict[str, Any], triangle: dict[str, Any], host: Host, device: str | None) -> list[Finding]:
    """Findings on whether a scope covers a host."""
    wanted = device or ("cuda" if host.gpus else "cpu")
    certified = str(scope.get("device"))
    machine = scope.get("machine")
    if machine and host.machine and machine != host.machine:
        return [_finding("machine", "no", f"certified on {machine}, the host is {host.machine}")]
    if wanted == "cpu":
        if certified == "cpu":
            return [_finding("device", "yes", "certified for cpu")]
        return [_finding("device", "unknown", "certified with a GPU; nothing was proven without one")]
    if certified != "cuda":
        text = "certified for cpu only; nothing was proven on a GPU"
        return [_finding("device", "unknown", text, "verify it on a GPU host: gpuimg certify --image …")]
    return [*_gpus(scope, host), _driver(scope, triangle, host)]


def _gpus(scope: dict[str, Any], host: Host) -> list[Finding]:
    if not host.gpus:
        return [_finding("gpu", "unknown", "the host's GPUs are not known")]
    names = {_normal(str(n)): str(n) for n in scope.get("gpus") or []}
    capabilities = {str(c) for c in scope.get("compute_capability") or []}
    out = []
    for gpu in dict.fromkeys((g.name, g.compute_capability) for g in host.gpus):
        name, capability = gpu
        if _normal(name) in names:
            out.append(_finding("gpu", "yes", f"certified on {names[_normal(name)]}", gpu=name))
        elif capability is not None and capability in capabilities:
            text = (
                f"certified on {', '.join(names.values())}, of the same compute capability {capability}; not on {name}"
            )
            out.append(_finding("gpu", "unknown", text, gpu=name))
        else:
            text = f"certified on {', '.join(names.values())}; nothing is known for {name}"
            out.append(_finding("gpu", "unknown", text, "verify it there: gpuimg verify", gpu=name))
    count = scope.get("gpu_count")
    if isinstance(count, int) and len(host.gpus) > count:
        out.append(_finding("gpu-count", "warn", f"certified with {count}, the host has {len(host.gpus)}"))
    return out


def _driver(scope: dict[str, Any], triangle: dict[str, Any], host: Host) -> Finding:
    certified = scope.get("driver") or triangle.get("driver")
    if host.driver is None or certified is None:
        who = "the host's driver" if host.driver is None else "the certificate's driver"
        return _finding("driver", "unknown", f"{who} is not known")
    have, was = _version(host.driver), _version(str(certified))
    if have[:1] >= was[:1]:
        if have >= was:
            return _finding("driver", "yes", f"driver {host.driver}, certified with {certified}")
        text = f"driver {host.driver} is of the certified branch {was[0]}, but older than {certified}"
        return _finding("driver", "warn", text)
    text = f"driver {host.driver} is of an older branch than {certified}, with which it was certified"
    return _finding("driver", "unknown", text, "gpuimg fit says whether it can run; or update the driver")


def _signature(certificate: Certificate, keys: list[PublicKey]) -> Finding:
    if certificate.envelope is None:
        return _finding("signature", "no", "the certificate is not signed")
    key = signed_by(certificate, keys)
    if key is not None:
        return _finding("signature", "yes", f"signed with {key.name}")
    if not keys:
        return _finding("signature", "unknown", "signed, but no key is trusted here", "give one: --key cosign.pub")
    return _finding("signature", "no", "no trusted key made this signature", "give its public key: --key FILE")


def _subject(statement: dict[str, Any], digest: str) -> Finding:
    subjects = statement.get("subject")
    found = [
        "sha256:" + str(s.get("digest", {}).get("sha256"))
        for s in (subjects if isinstance(subjects, list) else [])
        if isinstance(s, dict)
    ]
    if digest in found:
        return _finding("digest", "yes", f"about {digest}")
    return _finding("digest", "no", f"about {', '.join(found) or 'nothing'}, not {digest}")


def _result(predicate: dict[str, Any]) -> Finding:
    checks = [c for c in predicate.get("checks") or [] if isinstance(c, dict)]
    bad = [str(c.get("id")) for c in checks if c.get("status") in ("fail", "error")]
    if predicate.get("result") != "certified" or bad or not checks:
        return _finding("result", "no", f"not a positive result: {', '.join(bad) or predicate.get('result')}")
    passed = sum(c.get("status") == "pass" for c in checks)
    skipped = [c for c in predicate.get("skipped") or [] if isinstance(c, dict)]
    open_ = [str(c.get("id")) for c in skipped if c.get("applies", True)]
    text = f"{passed} checks passed"
    if len(skipped) > len(open_):
        text += f", {len(skipped) - len(open_)} do not apply"
    if open_:
        text += f"; not checked: {', '.join(open_)}"
    return _finding("result", "yes", text)


def _expiry(predicate: dict[str, Any], now: datetime) -> Finding:
    try:
        issued, expires = parse_time(str(predicate["issued"])), parse_time(str(predicate["expires"]))
    except (KeyError, ValueError):
        return _finding("expiry", "no", "no readable dates in the certificate")
    if now >= expires:
        return _finding("expiry", "no", f"expired on {predicate['expires']}", "certify it again")
    if issued > now:
        return _finding("expiry", "warn", f"issued on {predicate['issued']}, in the future: is the clock right?")
    return _finding("expiry", "yes", f"valid until {predicate['expires']}")


def _worst(findings: list[Finding]) -> Answer:
    verdicts = {f.verdict for f in findings}
    return "no" if "no" in verdicts else "unknown" if "unknown" in verdicts else "yes"


def _finding(rule: str, verdict: Answer, evidence: str, fix: str | None = None, *, gpu: str | None = None) -> Finding:
    return Finding(rule, verdict, evidence, SOURCE, gpu=gpu, fix=fix)


def _normal(name: str) -> str:
    """'NVIDIA H200' and 'h200' are one; 'H200 NVL' is another card."""
    return re.sub(r"[^a-z0-9]+", " ", name.lower().replace("nvidia", "").replace("geforce", "")).strip()


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(p) for p in re.findall(r"\d+", text)) or (0,)
