"""The verdict: a skip is never a pass, no GPU evidence gives no GPU certificate, and nothing forged gets through."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuimg.certify.judge import judge, on_gpu
from gpuimg.certify.policy import Policy, load_policy
from gpuimg.errors import BadInput
from gpuimg.nouns import CheckResult, Evidence

UUID = "GPU-12345678-1234-1234-1234-123456789abc"
POLICY = Policy.model_validate(
    {
        "schema": "gpuimg/policy/v1",
        "name": "test",
        "floors_source": "none",
        "validity_days": 30,
        "profiles": {
            "smoke": {
                "cpu": {"required": ["compute.matmul", "train.compile"], "always": ["triangle.loaded"]},
                "cuda": {"required": ["compute.matmul"]},
            }
        },
    }
)


def check(check_id: str, status: str = "pass", **more: Any) -> CheckResult:
    return CheckResult(check_id, check_id, status, 1.0, **more)  # type: ignore[arg-type]


def evidence(*checks: CheckResult, gpu: bool = False, **host: Any) -> Evidence:
    environment: dict[str, Any] = {"device": "cpu", "gpus": [], "framework": "torch", "machine": "x86_64"}
    device = "cpu"
    if gpu:
        device = "cuda:0"
        card = {"name": "NVIDIA H200", "compute_capability": "9.0", "uuid": UUID}
        environment |= {"device": "cuda", "gpus": [card], "driver": "580.82.07", "driver_cuda": "13.0"}
    facts = {
        "authentic": {"ok": True},
        "challenges": [{"check": "compute.matmul", "device": device, "ok": True}],
        "watch": {"available": True, "worked": True} if gpu else {"available": False, "reason": "no GPU"},
        **host,
    }
    return Evidence(environment, checks, {}, "1", "sha256:0", "smoke", "sha256:1", "cdi", "a", "b", facts)


GOOD = (check("compute.matmul"), check("train.compile"), check("triangle.loaded"))
GOOD_GPU = (check("compute.matmul", measured={"result_device": "cuda:0"}),)


def test_cpu_run_certifies_for_cpu_and_says_what_it_did_not_prove() -> None:
    verdict = judge(evidence(*GOOD), POLICY)
    assert verdict.certified
    assert verdict.device == "cpu"
    assert verdict.scope["device"] == "cpu"
    assert any("nothing was proven on a GPU" in r for r in verdict.reasons)


def test_gpu_run_certifies_for_card_and_driver_branch() -> None:
    verdict = judge(evidence(*GOOD_GPU, gpu=True), POLICY)
    assert verdict.certified
    assert verdict.scope["gpus"] == ["NVIDIA H200"]
    assert verdict.scope["driver_branch"] == "580"


@pytest.mark.parametrize("status", ["skip", "fail", "error"])
def test_required_check_must_have_passed(status: str) -> None:
    verdict = judge(evidence(check("compute.matmul", status, reason="why"), *GOOD[1:]), POLICY)
    assert not verdict.certified
    assert any(r.startswith("compute.matmul") for r in verdict.reasons)


def test_missing_required_check_refuses() -> None:
    assert not judge(evidence(*GOOD[1:]), POLICY).certified


def test_requirement_of_the_suites_profile_counts_as_well() -> None:
    verdict = judge(evidence(*GOOD, required=["infer.roundtrip"]), POLICY)
    assert not verdict.certified
    assert any("infer.roundtrip" in r for r in verdict.reasons)


def test_what_does_not_apply_is_no_refusal_unless_the_policy_says_always() -> None:
    skipped = check("train.compile", "skip", applicable=False, reason="no compiler")
    assert judge(evidence(GOOD[0], skipped, GOOD[2]), POLICY).certified
    always = check("triangle.loaded", "skip", applicable=False, reason="no")
    assert not judge(evidence(*GOOD[:2], always), POLICY).certified


@pytest.mark.parametrize("status", ["fail", "error"])
def test_any_failure_refuses_even_of_a_check_nobody_required(status: str) -> None:
    assert not judge(evidence(*GOOD, check("card.wear", status)), POLICY).certified


def test_gpu_visible_but_unused_gives_a_cpu_verdict() -> None:
    seen = evidence(*GOOD, gpu=True)
    verdict = judge(
        replace(seen, host={**seen.host, "challenges": [{"check": "x", "device": "cpu", "ok": True}]}), POLICY
    )
    assert verdict.device == "cpu"


@pytest.mark.parametrize(
    "host",
    [
        {"authentic": {"ok": False, "reason": "forged"}},
        {"authentic": None},
        {"challenges": []},
        {"challenges": [{"check": "compute.matmul", "device": "cuda:0", "ok": False}]},
        {"challenges": [{"check": "compute.matmul", "device": "cpu", "ok": True}]},
        {"watch": {"available": True, "worked": False}},
        {"only": ["compute.*"]},
    ],
)
def test_untrusted_gpu_evidence_is_refused(host: dict[str, Any]) -> None:
    assert not judge(evidence(*GOOD_GPU, gpu=True, **host), POLICY).certified


def test_unwatched_gpu_is_a_limit_or_a_refusal_as_the_policy_says() -> None:
    unwatched = evidence(*GOOD_GPU, gpu=True, watch={"available": False, "reason": "remote engine"})
    assert judge(unwatched, POLICY).certified
    strict = POLICY.model_copy(update={"watch": "required"})
    assert not judge(unwatched, strict).certified


def test_unknown_profile_is_named_with_the_nearest() -> None:
    with pytest.raises(BadInput, match="did you mean 'smoke'"):
        judge(replace(evidence(*GOOD), profile="smke"), POLICY)


@given(st.lists(st.sampled_from(["pass", "fail", "skip", "error"]), min_size=3, max_size=3))
def test_certified_only_if_every_required_check_passed(statuses: list[str]) -> None:
    checks = [replace(c, status=s) for c, s in zip(GOOD, statuses, strict=True)]
    assert judge(evidence(*checks), POLICY).certified == (statuses == ["pass"] * 3)


def test_shipped_policy_reads_and_its_digest_is_stable() -> None:
    assert load_policy().digest == load_policy().digest
    assert load_policy().digest.startswith("sha256:")


@pytest.mark.parametrize(
    ("measured", "answer"),
    [
        ({"device": "cuda"}, True),
        ({"result_device": "cuda:0"}, True),
        ({"result_device": "gpu:0"}, True),
        ({"where": {"result_device": "CudaDevice(id=0)"}}, True),
        ({"device": "cpu"}, False),
        ({"result_device": "TFRT_CPU_0"}, False),
        ({}, False),
    ],
)
def test_on_gpu(measured: dict[str, Any], answer: bool) -> None:
    assert on_gpu(measured) is answer
