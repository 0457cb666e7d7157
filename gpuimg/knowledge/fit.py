"""Will it run there? ``answer(question)`` → ``Answer``: the verdict first, every reason, and what runs instead.

All blockers are named together. A fact nobody gave is asked for only where it would decide: without a card or a
driver the
rules are run over every card that could be meant, and when all give the same answer that is the answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from packaging.requirements import InvalidRequirement
from packaging.requirements import Requirement as Pep508
from packaging.specifiers import SpecifierSet

from gpuimg.errors import BadInput
from gpuimg.knowledge.base import Knowledge, version_key
from gpuimg.knowledge.gpunames import Card
from gpuimg.knowledge.judging import (
    NEUTRAL,
    NO_GPU_CODE,
    Evaluation,
    candidates_of,
    is_gpu,
    judge_base,
    judge_base_for_card,
    judge_card,
    judge_general,
    judge_server,
)
from gpuimg.knowledge.requirement import parse_requirement, text_of
from gpuimg.knowledge.rules.companions import (
    Asked,
    judge_loaded_libraries,
    judge_pins,
    judge_shared_libraries,
    loads_torchs,
    pins,
)
from gpuimg.knowledge.rules.driver import judge_agreement, judge_card_driver, newest_cuda
from gpuimg.knowledge.rules.engines import ENGINES, judge_mig, judge_together
from gpuimg.knowledge.rules.outcome import RANK, Outcome, combine, outcome
from gpuimg.knowledge.rules.sm import TEGRA
from gpuimg.knowledge.rules.wheel import python_ok
from gpuimg.knowledge.selection import Choice, choose, describe, is_exact
from gpuimg.knowledge.situation import Question, Situation, Wanted, situate
from gpuimg.knowledge.tables import Build
from gpuimg.nouns import Finding, FitVerdict, Requirement

PRIMARY = (
    "vllm", "sglang", "tensorrt-llm", "torch", "tensorflow", "tensorflow-gpu", "jax", "paddlepaddle-gpu", "mindspore",
    "mindspore-gpu", "onnxruntime-gpu",
)  # fmt: skip
"""Which of several packages the advice is about first."""
ORDER = {"no": 0, "unknown": 1, "warn": 2, "yes": 3}
GOOD: tuple[FitVerdict, ...] = ("fits", "fits-with-compat", "fits-via-ptx")
THROUGH_OTHERS = ENGINES | {"deepspeed", "faster-whisper"}
"""Packages whose GPU code is in what they require, so that an open requirement of theirs counts."""
EXTENSIONS = ("torchvision", "torchaudio", "torchtext", "xformers", "vllm", "flash-attn", "triton", "sgl-kernel")


@dataclass(frozen=True)
class Judged:
    """One verdict with everything that led to it."""

    verdict: FitVerdict
    outcomes: tuple[Outcome, ...]
    evaluations: tuple[Evaluation, ...]
    per_gpu: tuple[tuple[Card, FitVerdict], ...]


@dataclass(frozen=True)
class Answer:
    """The answer document of ``fit``; ``to_json`` is what ``--json`` prints."""

    verdict: FitVerdict
    requirement: dict[str, str]
    host: dict[str, Any]
    chosen: dict[str, Any]
    per_gpu: tuple[dict[str, Any], ...]
    findings: tuple[Finding, ...]
    missing: tuple[str, ...] = ()
    instead: tuple[dict[str, Any], ...] = ()
    evaluations: tuple[Evaluation, ...] = field(default=(), repr=False)
    situation: Situation | None = field(default=None, repr=False)

    @property
    def exit_code(self) -> int:
        """0 fits, 1 does not, 3 cannot tell."""
        return {"does-not-fit": 1, "unknown": 3}.get(self.verdict, 0)

    def to_json(self) -> dict[str, Any]:
        return {
            "verdict": self.verdict,
            "requirement": self.requirement,
            "host": self.host,
            "chosen": self.chosen,
            "per_gpu": list(self.per_gpu),
            "findings": [f.to_json() for f in self.findings],
            "missing": list(self.missing),
            "instead": list(self.instead),
        }


def answer(question: Question, knowledge: Knowledge) -> Answer:
    """The whole answer. Raises BadInput when nothing is asked."""
    situation = situate(question, knowledge)
    if not situation.wanted and situation.base is None:
        raise BadInput(
            "nothing to judge: give a requirement (torch==2.5.1), -r FILE, --dockerfile FILE or --base IMAGE"
        )
    judged = judge(situation, knowledge)
    from gpuimg.knowledge.suggest import suggest

    instead = suggest(situation, judged, knowledge) if judged.verdict in {"does-not-fit", "unknown"} else ()
    findings = tuple(sorted((o.finding for o in judged.outcomes), key=lambda f: ORDER[f.verdict]))
    missing: list[str] = []
    if judged.verdict == "unknown":
        for one in judged.outcomes:
            if one.finding.verdict == "unknown":
                missing.extend(m for m in one.missing if m not in missing)
    return Answer(
        verdict=judged.verdict,
        requirement=_asked(situation),
        host=_host(situation, knowledge),
        chosen=chosen_of(judged, situation, knowledge),
        per_gpu=tuple(_per_gpu(c, v) for c, v in judged.per_gpu),
        findings=_unique(findings),
        missing=tuple(missing),
        instead=instead,
        evaluations=judged.evaluations,
        situation=situation,
    )


def judge(situation: Situation, knowledge: Knowledge) -> Judged:
    """All rules over one situation."""
    shared: list[Outcome] = []
    agreement = judge_agreement(situation.driver, knowledge)
    if agreement is not None:
        shared.append(agreement)
    if situation.base is not None:
        shared.extend(judge_base(situation.base, situation, knowledge))
    evaluations, selection = select(situation, knowledge)
    shared.extend(selection)
    asked = [_asked_of(e) for e in evaluations]
    shared.extend(o for o in judge_pins(asked))
    shared.extend(judge_shared_libraries(asked))
    shared.extend(judge_loaded_libraries(asked))
    gpu_wanted = any(is_gpu(e.build) for e in evaluations) or (situation.base is not None and situation.base.base_cuda)
    per_gpu: list[tuple[Card, FitVerdict]] = []
    card_outcomes: list[Outcome] = []
    general = [o for e in evaluations for o in e.general]
    for index, card in enumerate(situation.cards):
        own = list(judge_for_card(card, situation, evaluations, knowledge, index=index))
        card_outcomes.extend(own)
        per_gpu.append((card, combine([*shared, *general, *own, _ran(card)])))
    if not situation.cards and gpu_wanted:
        card_outcomes.extend(_any_card(situation, evaluations, knowledge))
    shared.extend(_together(situation))
    everything = [*shared, *general, *card_outcomes]
    if not evaluations and situation.base is None and not shared:
        everything.append(
            outcome(
                "requirement",
                "unknown",
                "nothing that is asked for is in the data",
                f"knowledge base of {knowledge.date}",
                missing=("requirement",),
            )
        )
    if gpu_wanted and not everything:
        names = ", ".join(describe(e.build) for e in evaluations)
        text = f"{names}: the GPU code is in packages it runs on (torch …), and which ones is not given"
        everything.append(outcome("requirement", "unknown", text, "wheel metadata", missing=("requirement",)))
    if not everything or (all(o.finding.verdict != "no" for o in everything) and not gpu_wanted and evaluations):
        everything.append(outcome("cpu", "yes", "nothing here asks for a GPU", "wheel metadata"))
    return Judged(combine(everything), tuple(everything), tuple(evaluations), tuple(per_gpu))


def _ran(card: Card) -> Outcome:
    return outcome("gpu", "yes", f"{card.name} was judged", "")


def _together(situation: Situation) -> list[Outcome]:
    made: list[Outcome] = []
    cards = [c for c in situation.cards for _ in range(min(c.count, 16))]
    mig = judge_mig([c.mig for c in cards])
    if mig is not None:
        made.append(mig)
    known = [c.compute_capability for c in cards if c.compute_capability]
    if len(cards) > 1 and len(known) == len(cards):
        made.extend(judge_together(known, [c.brand for c in cards]))
    return made


def judge_for_card(
    card: Card,
    situation: Situation,
    evaluations: Sequence[Evaluation],
    knowledge: Knowledge,
    *,
    index: int | None = None,
) -> tuple[Outcome, ...]:
    """Everything one card adds. An ambiguous card is judged as each card it may be; unlike answers are 'unknown'."""
    notes = tuple(outcome("gpu-name", "warn", n, "card table", gpu=card.name) for n in card.notes if "modified" in n)
    if card.foreign is not None:
        return tuple(judge_server(card, None, situation.driver, knowledge))
    options = list(candidates_of(card, knowledge))
    if not options:
        near = f"; nearest: {', '.join(card.nearest)}" if card.nearest else ""
        return (
            outcome(
                "gpu", "unknown", f"{card.problem or card.text}{near}", "card table", gpu=card.name, missing=("gpu",)
            ),
        )
    results = [_with_capability(card, option, situation, evaluations, knowledge) for option in options]
    verdicts = {combine([*r, _ran(card)]) for r in results}
    if len(verdicts) == 1:
        return (*notes, *results[0])
    return (
        outcome("gpu", "unknown", f"{card.problem}: they differ here", "card table", gpu=card.name, missing=("gpu",)),
    )


def _with_capability(
    card: Card, capability: str, situation: Situation, evaluations: Sequence[Evaluation], knowledge: Knowledge
) -> tuple[Outcome, ...]:
    made = judge_server(card, capability, situation.driver, knowledge)
    gpu_builds = [e for e in evaluations if e.build.framework not in NEUTRAL]
    if situation.base is not None:
        with_code = [e.build for e in gpu_builds if e.build.framework not in NO_GPU_CODE]
        bundled = any(is_gpu(b) and b.bundles_cuda for b in with_code) and all(
            e.build.bundles_cuda or e.wanted.origin == "image" for e in gpu_builds
        )
        made.extend(judge_base_for_card(situation.base, card, capability, situation, knowledge, bundled=bundled))
    has_gpu = any(is_gpu(e.build) and e.build.framework not in {"numpy"} for e in gpu_builds)
    beside_torch = any(e.build.framework == "torch" for e in gpu_builds)
    for evaluation in gpu_builds:
        if (
            evaluation.build.device == "cpu"
            and has_gpu
            and evaluation.build.framework not in {"torch", "tensorflow", "jax"}
        ):
            continue
        found = judge_card(evaluation.build, card, capability, situation, knowledge)
        made.extend(_compile_only(o) if beside_torch and evaluation.build.framework == "triton" else o for o in found)
    return tuple(made)


def _compile_only(one: Outcome) -> Outcome:
    """Beside torch, Triton is only there for torch.compile: where it does not run, eager mode still does."""
    if one.finding.verdict != "no":
        return one
    text = f"{one.finding.evidence}; torch runs, torch.compile does not"
    return replace(one, finding=replace(one.finding, verdict="warn", evidence=text))


def _any_card(situation: Situation, evaluations: Sequence[Evaluation], knowledge: Knowledge) -> list[Outcome]:
    """No card given: every card this driver could drive. The same answer for all of them needs no card."""
    results: list[tuple[FitVerdict, tuple[Outcome, ...]]] = []
    for arch in knowledge.architectures:
        capability = arch.compute_capability
        if capability in TEGRA or capability.startswith(("2.", "3.0", "3.2")):
            continue
        if judge_card_driver(capability, situation.driver, knowledge) is not None:
            continue
        for centre, brand in ((True, "tesla"), (False, "geforce")):
            card = Card(
                text="",
                name=f"a card of compute capability {capability}",
                compute_capability=capability,
                data_centre=centre,
                brand=brand,
            )
            outcomes = _with_capability(card, capability, situation, evaluations, knowledge)
            results.append((combine([*outcomes, _ran(card)]), outcomes))
    verdicts = {v for v, _ in results}
    if verdicts == {"does-not-fit"}:
        fewest = min(results, key=lambda r: sum(o.finding.verdict == "no" for o in r[1]))[1]
        return [replace(o, finding=replace(o.finding, gpu=None)) for o in fewest if o.finding.verdict != "yes"]
    if len(verdicts) == 1 and verdicts <= {"fits"}:
        return [replace(o, finding=replace(o.finding, gpu=None)) for o in results[-1][1] if o.finding.rule != "sm"]
    made = [
        outcome(
            "gpu",
            "unknown",
            "which card it is would decide, and none is given",
            "CUDA compute capabilities",
            missing=("gpu",),
        )
    ]
    drivers = {
        o.finding.evidence: o
        for _, outcomes in results
        for o in outcomes
        if o.finding.rule in {"driver", "base-driver"}
    }
    made.extend(
        replace(o, finding=replace(o.finding, gpu=None))
        for o in list(drivers.values())[:3]
        if o.finding.verdict != "no"
    )
    return made


# --- which builds ---------------------------------------------------------------------------------------------------


def select(situation: Situation, knowledge: Knowledge) -> tuple[list[Evaluation], list[Outcome]]:
    """One build for each package asked for (and the torch others pin), with what choosing them showed."""
    evaluations: list[Evaluation] = []
    shared: list[Outcome] = []
    wanted = list(situation.wanted)
    exact = [w for w in wanted if is_exact(w.requirement) or w.requirement.local]
    ordered = [*exact, *(w for w in wanted if w not in exact)]
    ordered.sort(key=lambda w: (w not in exact, w.name != "torch"))
    chosen: dict[str, Build] = {}
    for one in ordered:
        one = _narrowed(one, chosen, knowledge)
        choice = _compatible(one, choose(one, situation, knowledge), chosen, knowledge)
        choice = replace(choice, builds=tuple(loads_torchs(b, chosen.get("torch")) for b in choice.builds))
        if one.origin == "command line":
            choice = _same_label(one, choice, chosen.get("torch"), knowledge)
        picked, said = pick(one, choice, situation, knowledge)
        shared.extend(said)
        if picked is not None:
            evaluations.append(picked)
            chosen[one.name] = picked.build
    if "torch" not in chosen:
        evaluations.extend(_implied(chosen, evaluations, situation, knowledge))
    torch = next((e.build for e in evaluations if e.build.framework == "torch"), None)
    return [replace(e, build=loads_torchs(e.build, torch)) for e in evaluations], shared


def _narrowed(one: Wanted, chosen: dict[str, Build], knowledge: Knowledge) -> Wanted:
    """An open torch beside an exact torchvision, vllm …: pip takes the torch they pin."""
    if is_exact(one.requirement):
        return one
    clauses = [c for c in one.requirement.specifier.split(",") if c]
    for build in chosen.values():
        for text in build.requires:
            try:
                pin = Pep508(text)
            except InvalidRequirement:
                continue
            if pin.name == one.name and one.name == "torch" and str(pin.specifier).startswith("=="):
                clauses.append(str(pin.specifier).split("+")[0])
    if len(clauses) == len([c for c in one.requirement.specifier.split(",") if c]):
        return one
    return replace(one, requirement=replace(one.requirement, specifier=",".join(dict.fromkeys(clauses))))


def _compatible(one: Wanted, choice: Choice, chosen: dict[str, Build], knowledge: Knowledge) -> Choice:
    """An open torchvision, xformers … beside a chosen torch: those whose pin takes it."""
    torch = chosen.get("torch")
    if torch is not None and one.name == "flash-attn" and choice.builds:
        return _released_wheel(choice, torch, knowledge)
    if is_exact(one.requirement) or not choice.builds:
        return choice
    choice = _within_pins(one, choice, chosen)
    if torch is None or one.name not in EXTENSIONS:
        return choice
    kept = tuple(b for b in choice.builds if _takes(b, torch))
    return replace(choice, builds=kept) if kept else choice


def _same_label(one: Wanted, choice: Choice, torch: Build | None, knowledge: Knowledge) -> Choice:
    """torchvision and torchaudio come from the index torch comes from: the build of the same label, where there is one."""
    if torch is None or not torch.local or one.requirement.local or one.name not in {"torchvision", "torchaudio"}:
        return choice
    versions = {b.version for b in choice.builds}
    same = [
        b
        for b in knowledge.builds(one.name, machine=torch.machine)
        if b.version in versions and b.local == torch.local and _takes(b, torch)
    ]
    same.sort(key=lambda b: version_key(b.version), reverse=True)
    return replace(choice, builds=tuple(same)) if same else choice


def _within_pins(one: Wanted, choice: Choice, chosen: dict[str, Build]) -> Choice:
    """An open requirement beside packages that pin it: pip takes a version they allow. NumPy's limit is often unwritten."""
    if one.name == "numpy":
        return choice
    limits = [found for build in chosen.values() if (found := pins(build).get(one.name)) is not None]
    if not limits:
        return choice
    kept = tuple(b for b in choice.builds if all(s.contains(version_key(b.version).public) for s in limits))
    return replace(choice, builds=kept) if kept else choice


def _released_wheel(choice: Choice, torch: Build, knowledge: Knowledge) -> Choice:
    """flash-attn's setup takes the wheel its project released for that torch and CUDA major, else compiles."""
    version = choice.builds[0].version
    cuda = (torch.wheel_cuda or "").split(".")[0]
    for build in knowledge.builds("flash-attn", version):
        if build.index == "github" and (build.wheel_cuda or "").split(".")[0] == cuda and _takes(build, torch):
            return replace(choice, builds=(build,))
    return choice


def _takes(build: Build, torch: Build) -> bool:
    for text in build.requires:
        try:
            pin = Pep508(text)
        except InvalidRequirement:
            continue
        if pin.name == "torch" and not SpecifierSet(str(pin.specifier).split("+")[0]).contains(
            version_key(torch.version), prereleases=True
        ):
            return False
    return True


def evaluate(wanted: Wanted, build: Build, situation: Situation, knowledge: Knowledge) -> Evaluation:
    """One build under one situation."""
    return Evaluation(wanted, build, judge_general(wanted, build, situation, knowledge), ())


def verdict_of(evaluation: Evaluation, situation: Situation, knowledge: Knowledge) -> FitVerdict:
    """The verdict of one build alone, over all cards."""
    outcomes = list(evaluation.general)
    for card in situation.cards:
        outcomes.extend(judge_for_card(card, situation, [evaluation], knowledge))
    if not situation.cards and is_gpu(evaluation.build):
        outcomes.extend(_any_card(situation, [evaluation], knowledge))
    outcomes.append(outcome("wheel", "yes", describe(evaluation.build), ""))
    return combine(outcomes)


def pick(
    wanted: Wanted, choice: Choice, situation: Situation, knowledge: Knowledge
) -> tuple[Evaluation | None, list[Outcome]]:
    """pip's own pick; on the command line an open range goes on to the newest version that fits."""
    name = wanted.name
    placeholder = next((r for r in knowledge.removed if r.package == name and not r.versions), None)
    if placeholder is not None and wanted.origin == "file":
        text = f"{name}: {placeholder.why}"
        return None, [outcome("wheel", "no", text, placeholder.source, fix=f"write {placeholder.instead}")]
    if not choice.builds:
        others = any(knowledge.builds(w.name) for w in situation.wanted if w.name != wanted.name)
        return None, _nothing(wanted, choice, knowledge, others=others)
    own = _pip_pick(wanted, choice.builds, situation)
    first = evaluate(wanted, own, situation, knowledge)
    alternatives = _alternatives(wanted, own, choice.builds)
    if not alternatives:
        return first, []
    verdict = verdict_of(first, situation, knowledge)
    if RANK[verdict] <= RANK["fits"] or (not situation.cards and verdict == "unknown"):
        return first, []
    if verdict in GOOD:
        alternatives = [b for b in alternatives if b.version == own.version]
    best, best_verdict = first, verdict
    for build in alternatives:
        other = evaluate(wanted, build, situation, knowledge)
        found = verdict_of(other, situation, knowledge)
        # Without a card "unknown" is the best there can be; with one it is no answer to go on to.
        if RANK[found] < RANK[best_verdict] and (found != "unknown" or not situation.cards):
            best, best_verdict = other, found
            if found == "fits" or RANK[verdict] >= RANK["unknown"]:
                break
    if best is first:
        return first, []
    if version_key(best.build.version) == version_key(own.version):
        return best, []
    said = outcome(
        "pip-pick",
        "warn",
        f"pip itself would take {describe(own)}, which "
        + ("does not run there" if verdict == "does-not-fit" else f"is '{verdict}' there")
        + f"; {describe(best.build)} {'may' if best_verdict == 'unknown' else 'does'}: pin it",
        own.source,
        fix=f"{name}=={best.build.version}",
    )
    return best, [said]


def _pip_pick(wanted: Wanted, builds: Sequence[Build], situation: Situation) -> Build:
    python = situation.python
    if is_exact(wanted.requirement) and not (python and len({b.version for b in builds}) == 1):
        return builds[0]
    if python is None:
        return builds[0]
    for build in builds:
        if python_ok(build, python) is not False:
            return build
    return builds[0]


def _alternatives(wanted: Wanted, own: Build, builds: Sequence[Build]) -> list[Build]:
    """Builds that would also be what was asked for: same version without a PyPI default; or an open range by hand."""
    same = [b for b in builds if b is not own and b.version == own.version]
    if own.default or (own.local and wanted.requirement.local) or (wanted.origin == "file" and own.index == "pypi"):
        same = []
    if is_exact(wanted.requirement) or wanted.origin in {"file", "conda"}:
        return same
    return [*same, *(b for b in builds if b.version != own.version)]


def _nothing(wanted: Wanted, choice: Choice, knowledge: Knowledge, *, others: bool) -> list[Outcome]:
    """No build: unknown package or version, newer than the data, or a build that does not exist.

    ``others``: something else that is known is asked for as well.
    """
    requirement = wanted.requirement
    near = f"; nearest: {', '.join(choice.nearest)}" if choice.nearest else ""
    if choice.no_such_build:
        have = ", ".join(dict.fromkeys(describe(b) for b in choice.no_such_build))
        if choice.problem:
            return [outcome("wheel", "no", choice.problem, choice.no_such_build[0].source)]
        return [
            outcome(
                "wheel",
                "no",
                f"{text_of(requirement)}: there is no such build; what exists: {have}",
                choice.no_such_build[0].source,
                fix="take one of the builds that exist",
            )
        ]
    if not knowledge.builds(requirement.name) and (wanted.origin in {"file", "conda"} or (others and not choice.close)):
        if wanted.origin != "command line":
            return []
        text = f"{requirement.name} is not in the data: not judged"
        return [outcome("requirement", "warn", text, f"knowledge base of {knowledge.date}")]
    if wanted.origin == "image":
        if wanted.name not in PRIMARY:
            return []
        return [outcome("image", "unknown", f"{choice.problem}{near}", "tag of the image", missing=("image contents",))]
    what = "newer than the data" if choice.newer else "not known"
    return [
        outcome(
            "version",
            "unknown",
            f"{choice.problem}{near}",
            f"knowledge base of {knowledge.date}",
            missing=(f"{requirement.name}: {what}",),
        )
    ]


def _implied(
    chosen: dict[str, Build], evaluations: Sequence[Evaluation], situation: Situation, knowledge: Knowledge
) -> list[Evaluation]:
    """What else pip brings that holds GPU code: vLLM for a package that asks for it, then torch."""
    made: list[Evaluation] = []
    for name in ("vllm", "ctranslate2", "torch"):
        if name in chosen or any(w.name == name for w in situation.wanted):
            continue
        for one in (*made, *evaluations):
            found = _brought(name, one, situation, knowledge)
            if found is not None:
                made.append(found)
                break
    return made


def _brought(name: str, one: Evaluation, situation: Situation, knowledge: Knowledge) -> Evaluation | None:
    """The build of ``name`` that a chosen build brings along. Open requirements count for engines only."""
    build = one.build
    for text in build.requires:
        if not re.match(rf"{name}(?![\w-])", text):
            continue
        exact = text.startswith(f"{name}==")
        if not exact and (build.framework not in THROUGH_OTHERS or one.wanted.origin == "image"):
            continue
        try:
            requirement = parse_requirement(text)
        except BadInput:
            continue
        own_label = build.local if build.local and re.match(r"cu\d|cpu", build.local) else None
        local = requirement.local or (None if build.framework == "flash-attn" else own_label)
        origin = one.wanted.origin if one.wanted.origin != "file" else "command line"
        implied = Wanted(replace(requirement, local=local), origin)
        choice = choose(implied, situation, knowledge)
        if choice.builds:
            return evaluate(implied, _pip_pick(implied, choice.builds, situation), situation, knowledge)
    return None


def _asked_of(evaluation: Evaluation) -> Asked:
    requirement = evaluation.wanted.requirement
    return Asked(evaluation.wanted.name, requirement.specifier, evaluation.build, requirement.file)


# --- the document ---------------------------------------------------------------------------------------------------


def primary(evaluations: Iterable[Evaluation]) -> Evaluation | None:
    """The evaluation the advice is about: engines before frameworks before the rest."""
    seen = [e for e in evaluations if e.build.framework not in NEUTRAL] or list(evaluations)
    ranked = sorted(
        seen, key=lambda e: PRIMARY.index(e.build.framework) if e.build.framework in PRIMARY else len(PRIMARY)
    )
    return ranked[0] if ranked else None


def pick_python(build: Build, situation: Situation) -> str | None:
    """The Python to use: the one given, else a well-supported one the wheel has."""
    if situation.python and not (situation.python_soft and python_ok(build, situation.python) is False):
        return situation.python
    allowed = [p for p in build.pythons or () if situation.allows_python(p)]
    for preferred in ("3.11", "3.12", "3.10"):
        if preferred in allowed:
            return preferred
    return max(allowed, key=version_key) if allowed else None


def pick_base(build: Build, situation: Situation, knowledge: Knowledge) -> str | None:
    """The image to build on: what was given, else a distribution (CUDA in the wheel) or cudnn-runtime
    (system-linked)."""
    if situation.base is not None:
        return situation.base.reference
    if situation.runtime == "bare":
        return None
    from gpuimg.knowledge.planning import base_for

    base = base_for(build, "ubuntu22.04", knowledge)
    return base.reference if base else None


def chosen_of(judged: Judged, situation: Situation, knowledge: Knowledge) -> dict[str, Any]:
    """What the answer is about: wheel_cuda, Python, index, base of the leading package."""
    lead = primary(judged.evaluations)
    if lead is None:
        base = situation.base
        return {"base": base.reference, "base_cuda": base.base_cuda} if base else {}
    build = lead.build
    found: dict[str, Any] = {
        lead.wanted.name: build.version,
        "wheel_cuda": build.wheel_cuda,
        "python": pick_python(build, situation),
        "index": build.index,
        "index_url": build.index_url,
        "cudnn": build.cudnn,
        "base": pick_base(build, situation, knowledge),
        "base_cuda": situation.base.base_cuda if situation.base else None,
    }
    if build.local:
        found["local"] = build.local
    others = {e.build.framework: describe(e.build) for e in judged.evaluations if e is not lead}
    if others:
        found["also"] = others
    return {k: v for k, v in found.items() if v is not None}


def _asked(situation: Situation) -> dict[str, str]:
    return {w.name: _version_text(w.requirement) for w in situation.wanted if w.origin != "image"} or {
        w.name: _version_text(w.requirement) for w in situation.wanted
    }


def _version_text(requirement: Requirement) -> str:
    text = requirement.specifier.removeprefix("==") if is_exact(requirement) else requirement.specifier
    return (text + (f"+{requirement.local}" if requirement.local else "")) or "any"


def _host(situation: Situation, knowledge: Knowledge) -> dict[str, Any]:
    gpus = []
    for card in situation.cards:
        gpu: dict[str, Any] = {"name": card.name, "compute_capability": card.compute_capability}
        if card.count > 1:
            gpu["count"] = card.count
        if card.mig:
            gpu["mig"] = card.mig
        gpus.append(gpu)
    driver = situation.driver
    found: dict[str, Any] = {
        "gpus": gpus,
        "driver": driver.version,
        "driver_cuda": driver.cuda or newest_cuda(driver, knowledge),
        "machine": situation.machine,
        "runtime": situation.runtime,
    }
    for name, value in (("os", situation.os), ("glibc", situation.glibc), ("python", situation.python)):
        if value is not None:
            found[name] = value
    return found


def _per_gpu(card: Card, verdict: FitVerdict) -> dict[str, Any]:
    found: dict[str, Any] = {"gpu": card.name, "verdict": verdict}
    if card.compute_capability:
        found["compute_capability"] = card.compute_capability
    if card.count > 1:
        found["count"] = card.count
    return found


def _unique(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    seen: dict[tuple[str, str, str | None], Finding] = {}
    for one in findings:
        seen.setdefault((one.rule, one.evidence, one.gpu), one)
    return tuple(seen.values())
