"""Properties of the rules that must hold whatever the data say."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from gpuimg.knowledge import load
from gpuimg.knowledge.fit import answer
from gpuimg.knowledge.requirement import join_arguments, parse_requirement
from gpuimg.knowledge.rules.driver import DriverFacts, judge_card_driver, judge_driver
from gpuimg.knowledge.rules.numbers import parts
from gpuimg.knowledge.rules.outcome import RANK
from gpuimg.knowledge.rules.sm import code_for
from gpuimg.knowledge.situation import Question

KNOWLEDGE = load()
DRIVERS = sorted({t.driver_linux for t in KNOWLEDGE.toolkits if t.driver_linux}, key=parts)
TORCH = sorted(
    {(b.version, b.local) for b in KNOWLEDGE.builds("torch", machine="x86_64") if b.device == "cuda"}, key=str
)
CARDS = ("K80", "GTX 1080", "V100", "T4", "A100", "RTX 3090", "RTX 4090", "H100", "B200", "RTX 5090")
BASES = (
    "nvidia/cuda:11.8.0-base-ubuntu22.04",
    "nvidia/cuda:12.4.1-base-ubuntu22.04",
    "nvidia/cuda:12.6.3-base-ubuntu22.04",
    "nvidia/cuda:13.0.1-base-ubuntu22.04",
)
GOOD = ("fits", "fits-with-compat", "fits-via-ptx")


def _torch(build: tuple[str, str | None]) -> str:
    return f"torch=={build[0]}" + (f"+{build[1]}" if build[1] else "")


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(TORCH), st.sampled_from(CARDS), st.integers(0, len(DRIVERS) - 2), st.integers(1, 12))
def test_a_newer_driver_never_breaks_what_fits(build: tuple[str, str | None], gpu: str, low: int, step: int) -> None:
    """Except through an architecture that a branch dropped."""
    asked = (parse_requirement(_torch(build)),)
    older, newer = DRIVERS[low], DRIVERS[min(low + step, len(DRIVERS) - 1)]
    before = answer(Question(asked, gpus=(gpu,), driver=older), KNOWLEDGE)
    after = answer(Question(asked, gpus=(gpu,), driver=newer), KNOWLEDGE)
    if before.verdict in GOOD and after.verdict not in GOOD:
        refused = [f for f in after.findings if f.verdict == "no"]
        assert {f.rule for f in refused} == {"gpu-driver"}, refused
        assert "no longer drives" in refused[0].evidence
    if before.verdict == "fits" and after.verdict in GOOD:
        assert after.verdict == "fits"


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(BASES), st.sampled_from(CARDS), st.integers(0, len(DRIVERS) - 1))
def test_a_native_driver_meets_every_base(base: str, gpu: str, index: int) -> None:
    """NVIDIA_REQUIRE_CUDA lets in every driver that is new enough for the base, whatever the brand."""
    found = answer(Question(base=base, gpus=(gpu,), driver=DRIVERS[index]), KNOWLEDGE)
    native = KNOWLEDGE.first_driver(base.split(":")[1])
    assert native is not None
    if parts(DRIVERS[index]) >= parts(native):
        assert not [f for f in found.findings if f.rule in {"require", "base-driver"} and f.verdict != "yes"]


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(["11.0", "11.8", "12.1", "12.4", "12.8", "13.0", "13.2"]), st.integers(0, len(DRIVERS) - 2))
def test_driver_rule_is_monotonic(cuda: str, low: int) -> None:
    rank = {"no": 2, "unknown": 2, "warn": 1, "yes": 0}
    first = judge_driver(cuda, DriverFacts(DRIVERS[low]), KNOWLEDGE, subject="x").finding.verdict
    second = judge_driver(cuda, DriverFacts(DRIVERS[low + 1]), KNOWLEDGE, subject="x").finding.verdict
    assert rank[second] <= rank[first]


@given(
    st.lists(st.sampled_from(["sm_50", "sm_70", "sm_80", "sm_86", "sm_90", "sm_120", "compute_90"]), unique=True),
    st.sampled_from(["7.0", "7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "12.0", "12.1"]),
)
def test_more_code_never_helps_less(targets: list[str], capability: str) -> None:
    order = {"none": 0, "ptx": 1, "sass": 2}
    full = order[code_for(capability, targets)]
    for left_out in targets:
        assert order[code_for(capability, [t for t in targets if t != left_out])] <= full


def test_code_rule() -> None:
    assert code_for("8.6", ["sm_80"]) == "sass"
    assert code_for("8.0", ["sm_86"]) == "none"
    assert code_for("9.0", ["sm_86"]) == "none"
    assert code_for("12.1", ["sm_120"]) == "sass"
    assert code_for("12.0", ["sm_90", "compute_90"]) == "ptx"
    assert code_for("10.0", ["sm_90a"]) == "none"
    assert code_for("9.0", ["sm_90a"]) == "sass"
    assert code_for("10.3", ["sm_100f"]) == "sass"
    assert code_for("8.7", ["sm_80", "sm_86"]) == "none"


SPELLINGS = st.sampled_from(
    (
        "{n}=={v}+{c}", "{n} == {v}+{c}", "{n} {v} {c}", "{N} {v} ({c})", "{n}==={v}+{c}", "  {n}=={v}+{c}  ", "'{n}=={v}+{c}'",
        "{n}=={v}-{c}", "{n}==v{v}+{c}", "pytorch {v} {d}", "PyTorch {v} CUDA {d2}", "{n}=={v}+cu{d2}",
        "https://download.pytorch.org/whl/{c}/torch-{v}%2B{c}-cp311-cp311-linux_x86_64.whl",
        "torch-{v}+{c}-cp311-cp311-manylinux_2_28_x86_64.whl", "pytorch::pytorch={v}=py3.11_cuda{d2}_cudnn9_0",
    )
)  # fmt: skip


@settings(max_examples=120, deadline=None)
@given(
    SPELLINGS, st.sampled_from([("2.5.1", "cu121"), ("2.1.2", "cu118"), ("2.7.1", "cu128")]), st.sampled_from(CARDS[3:])
)
def test_spelling_does_not_change_the_answer(form: str, build: tuple[str, str], gpu: str) -> None:
    version, label = build
    dotted = f"{label[2:4]}.{label[4:]}"
    text = form.format(n="torch", N="Torch", v=version, c=label, d=label, d2=dotted)
    plain = parse_requirement(f"torch=={version}+{label}", aliases=KNOWLEDGE.aliases)
    spelt = parse_requirement(text, aliases=KNOWLEDGE.aliases)
    assert (spelt.name, spelt.specifier, spelt.local) == (plain.name, plain.specifier, plain.local)
    question = Question((plain,), gpus=(gpu,), driver="570.124.06", python="3.11")
    other = Question((spelt,), gpus=(gpu,), driver="570.124.06", python="3.11")
    assert answer(question, KNOWLEDGE).verdict == answer(other, KNOWLEDGE).verdict


@given(st.text(max_size=40))
def test_any_text_is_a_requirement_or_bad_input(text: str) -> None:
    from gpuimg.errors import BadInput

    try:
        found = parse_requirement(text)
    except BadInput:
        return
    assert found.name


def test_words_of_one_requirement_are_joined() -> None:
    assert join_arguments(["torch", "2.5.1", "cu121", "vllm==0.6.3"]) == ("torch 2.5.1 cu121", "vllm==0.6.3")
    assert join_arguments(["PyTorch", "2.1.0", "CUDA", "11.8"]) == ("PyTorch 2.1.0 CUDA 11.8",)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(TORCH), st.lists(st.sampled_from(CARDS), min_size=2, max_size=3, unique=True))
def test_the_worst_card_decides(build: tuple[str, str | None], gpus: list[str]) -> None:
    asked = (parse_requirement(_torch(build)),)
    together = answer(Question(asked, gpus=tuple(gpus), driver="570.124.06"), KNOWLEDGE)
    alone = [answer(Question(asked, gpus=(g,), driver="570.124.06"), KNOWLEDGE).verdict for g in gpus]
    assert RANK[together.verdict] == max(RANK[v] for v in alone)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(TORCH), st.sampled_from(CARDS), st.sampled_from(DRIVERS))
def test_advice_holds(build: tuple[str, str | None], gpu: str, driver: str) -> None:
    """What is advised for the same driver does fit when asked for."""
    asked = (parse_requirement(_torch(build)),)
    found = answer(Question(asked, gpus=(gpu,), driver=driver), KNOWLEDGE)
    for entry in found.instead:
        if (
            entry.get("driver")
            or not entry.get("requirement")
            or ("index_url" not in entry and "wheel_cuda" not in entry)
        ):
            continue
        name, version = next(iter(entry["requirement"].items()))
        again = Question(
            (parse_requirement(f"{name}=={version}"),), gpus=(gpu,), driver=driver, python=entry.get("python")
        )
        if entry.get("base", "").startswith("nvidia/cuda"):
            again = Question(again.requirements, gpus=(gpu,), driver=driver, python=entry["python"], base=entry["base"])
        assert answer(again, KNOWLEDGE).verdict in GOOD, entry


def test_every_dropped_architecture_is_refused() -> None:
    for row in KNOWLEDGE.architectures:
        if row.last_driver_branch:
            branch = int(row.last_driver_branch.lstrip("R"))
            assert judge_card_driver(row.compute_capability, DriverFacts(f"{branch + 10}.10.10"), KNOWLEDGE) is not None
            last = judge_card_driver(row.compute_capability, DriverFacts(f"{branch}.200.10"), KNOWLEDGE)
            assert last is None
