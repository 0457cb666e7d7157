"""Evidence → verdict. Pure: the same evidence and policy always give the same verdict.

The rules: a skip is never a pass; any failed check or error refuses; without GPU evidence there is only a CPU
verdict; evidence whose frames were not authenticated, or whose challenges were not answered, refuses.
"""

from __future__ import annotations

from typing import Any

from gpuimg.certify.policy import Device, Policy
from gpuimg.nouns import CheckResult, Evidence, Verdict


def judge(evidence: Evidence, policy: Policy) -> Verdict:
    """Apply a policy to evidence.

    Raises:
        BadInput: the evidence's profile is not in the policy.
    """
    device = device_of(evidence)
    demand = policy.demand(evidence.profile, device)
    by_id = {check.id: check for check in evidence.checks}
    refusals: list[str] = []
    limits: list[str] = []
    unfit: dict[str, list[str]] = {}

    refusals += _authenticity(evidence)
    failed = [c for c in evidence.checks if c.status in ("fail", "error")]
    refusals += [f"{c.id}: {c.reason or c.status}" for c in failed]

    if evidence.host.get("only"):
        refusals.append(f"only a part of the profile was run: {', '.join(map(str, evidence.host['only']))}")
    for check_id in dict.fromkeys((*demand.always, *demand.required, *_profile_required(evidence))):
        found = by_id.get(check_id)
        if found is None:
            refusals.append(f"{check_id}: required by the policy, not in the evidence")
        elif found.status == "skip":
            if found.applicable or check_id in demand.always:
                refusals.append(f"{check_id}: required, but skipped: {found.reason or 'no reason given'}")
            else:
                unfit.setdefault(found.reason or "no reason given", []).append(check_id)
    limits += [f"does not apply ({why}): {', '.join(ids)}" for why, ids in unfit.items()]

    if evidence.environment and evidence.environment.get("framework") is None:
        asked = evidence.environment.get("framework_asked")
        refusals.append(f"{asked} is not installed there" if asked else "no framework was found to test")
    else:
        refusals += _challenges(evidence, policy, device)
    watch_refusals, watch_limits = _watch(evidence, policy, device)
    refusals += watch_refusals
    limits += watch_limits
    if device == "cpu":
        limits.append(_why_cpu(evidence))
    if not any(c.status == "pass" for c in evidence.checks):
        refusals.append("no check passed")

    return Verdict(
        certified=not refusals,
        device=device,
        scope=scope_of(evidence, device),
        reasons=tuple(refusals + limits),
        passed=tuple(c.id for c in evidence.checks if c.status == "pass"),
        failed=tuple(c.id for c in failed),
        skipped=tuple((c.id, c.reason or "no reason given") for c in evidence.checks if c.status == "skip"),
        policy_digest=policy.digest,
    )


def device_of(evidence: Evidence) -> Device:
    """'cuda' only when GPUs were visible inside, the run was meant for them and a check proves work on them."""
    if evidence.environment.get("device") != "cuda" or not gpus_of(evidence):
        return "cpu"
    return "cuda" if any(_on_gpu(c) for c in evidence.checks) else "cpu"


def gpus_of(evidence: Evidence) -> list[dict[str, Any]]:
    """GPUs as the suite saw them inside the container."""
    found = evidence.environment.get("gpus")
    return [g for g in found if isinstance(g, dict)] if isinstance(found, list) else []


def scope_of(evidence: Evidence, device: Device) -> dict[str, Any]:
    """What a certificate of this evidence is valid for."""
    framework = evidence.environment.get("framework")
    base = {"device": device, "profile": evidence.profile, "framework": framework}
    if device == "cpu":
        return {**base, "machine": evidence.environment.get("machine")}
    gpus = gpus_of(evidence)
    driver = evidence.environment.get("driver")
    return {
        **base,
        "gpus": sorted({str(g.get("name")) for g in gpus}),
        "gpu_count": len(gpus),
        "compute_capability": sorted({str(g.get("compute_capability")) for g in gpus}),
        "driver": driver,
        "driver_branch": str(driver).split(".")[0] if driver else None,
        "injection": evidence.injection,
    }


def _profile_required(evidence: Evidence) -> tuple[str, ...]:
    """What the suite's profile itself requires, as the host read it from its own copy of the suite."""
    found = evidence.host.get("required")
    return tuple(str(c) for c in found) if isinstance(found, list) else ()


def _authenticity(evidence: Evidence) -> list[str]:
    found = evidence.host.get("authentic")
    if not isinstance(found, dict) or not found.get("ok"):
        why = found.get("reason") if isinstance(found, dict) else None
        return [f"the results are not authenticated: {why or 'no proof that the suite itself wrote them'}"]
    return []


def _challenges(evidence: Evidence, policy: Policy, device: Device) -> list[str]:
    found = evidence.host.get("challenges")
    answers: list[dict[str, Any]] = found if isinstance(found, list) else []
    wrong = [str(a.get("check")) for a in answers if not a.get("ok")]
    if wrong:
        return [f"{check}: the answer to the host's random challenge is wrong" for check in wrong]
    right = [a for a in answers if a.get("ok") and (device == "cpu" or on_gpu(a))]
    if policy.challenges == "required" and not right:
        where = "on the GPU" if device == "cuda" else "by the framework"
        return [f"no random challenge of the host was answered {where}"]
    return []


def _watch(evidence: Evidence, policy: Policy, device: Device) -> tuple[list[str], list[str]]:
    """(refusals, limits) from what the host saw of the GPU from outside."""
    if device == "cpu":
        return [], []
    watch = evidence.host.get("watch")
    if not isinstance(watch, dict) or not watch.get("available"):
        why = watch.get("reason") if isinstance(watch, dict) else "not watched"
        text = f"the host could not watch the GPU from outside: {why}"
        return ([text], []) if policy.watch == "required" else ([], [text])
    if not watch.get("worked"):
        return ["the host watched the GPU during the run and saw it do no work"], []
    return [], []


def _why_cpu(evidence: Evidence) -> str:
    if evidence.environment.get("device") == "cuda":
        return "cpu only: GPUs were visible, but no check proves work on them"
    why = evidence.host.get("access", {}).get("reason") if isinstance(evidence.host.get("access"), dict) else None
    return f"cpu only: nothing was proven on a GPU ({why or 'none was given to the container'})"


def _on_gpu(check: CheckResult) -> bool:
    return check.status == "pass" and on_gpu(check.measured)


def on_gpu(measured: dict[str, Any]) -> bool:
    """True when a measurement says that its work ran on a GPU: 'cuda', 'cuda:0', 'gpu:0', 'CudaDevice(id=0)'."""
    places = [measured.get("device"), measured.get("result_device")]
    if isinstance(measured.get("where"), dict):
        places.append(measured["where"].get("result_device"))
    return any(str(place).lower().startswith(("cuda", "gpu")) for place in places if place)
