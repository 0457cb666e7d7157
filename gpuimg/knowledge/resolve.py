"""Pick a build for a requirement and a server: wheel_cuda, cuDNN, Python, index, base; with what was turned down
and why."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from gpuimg.knowledge.base import Knowledge, version_key
from gpuimg.knowledge.fit import Answer, answer, evaluate, judge_for_card, pick_base, pick_python, primary
from gpuimg.knowledge.images import read_image
from gpuimg.knowledge.requirement import text_of
from gpuimg.knowledge.rules.outcome import RANK, combine, outcome
from gpuimg.knowledge.rules.wheel import python_ok
from gpuimg.knowledge.selection import choose, describe
from gpuimg.knowledge.situation import Question, Situation, Wanted, situate
from gpuimg.knowledge.suggest import OTHER_NAMES_OF_EXTRAS
from gpuimg.knowledge.tables import Build
from gpuimg.nouns import FitVerdict, Requirement

FAMILIES = {"cupy": ("cupy-cuda13x", "cupy-cuda11x")}
"""A name that stands for several packages, one a CUDA major: the others beside the usual one."""
GOOD = ("fits", "fits-with-compat", "fits-via-ptx")


@dataclass(frozen=True)
class Resolution:
    """What to install. ``answer`` is the fit of exactly that; ``rejected`` names alternatives with their reasons."""

    answer: Answer
    chosen: dict[str, Any]
    rejected: tuple[dict[str, Any], ...]

    @property
    def exit_code(self) -> int:
        return self.answer.exit_code

    def to_json(self) -> dict[str, Any]:
        return {**self.answer.to_json(), "chosen": self.chosen, "rejected": list(self.rejected)}


def resolve(question: Question, knowledge: Knowledge) -> Resolution:
    """The newest version that satisfies the requirement and runs there, in its best build; then everything around it.

    Raises BadInput when nothing is asked.
    """
    situation = situate(question, knowledge)
    lead = _lead(situation, knowledge)
    if lead is None:
        plain = answer(question, knowledge)
        return Resolution(plain, plain.chosen, ())
    picked, rejected = _search(lead, situation, knowledge)
    if picked is None:
        plain = answer(question, knowledge)
        return Resolution(plain, plain.chosen, rejected)
    exact = _exact(lead.requirement, picked)
    others = tuple(r for r in question.requirements if r.name != lead.name)
    needs = question.needs
    if needs is not None:
        needs = replace(needs, requirements=tuple(r for r in needs.requirements if r.name != lead.name), conda=())
    got = answer(replace(question, requirements=(exact, *others), needs=needs), knowledge)
    return Resolution(got, _chosen(picked, got, exact, situation, knowledge), rejected)


def _lead(situation: Situation, knowledge: Knowledge) -> Wanted | None:
    """The package the rest depends on: the engine or framework asked for."""
    known = [w for w in situation.wanted if knowledge.builds(w.name)]
    evaluations = []
    for wanted in known:
        choice = choose(wanted, situation, knowledge)
        if choice.builds:
            evaluations.append(evaluate(wanted, choice.builds[0], situation, knowledge))
    lead = primary(evaluations)
    return lead.wanted if lead else None


def _builds(lead: Wanted, situation: Situation, knowledge: Knowledge) -> list[Build]:
    """Every build of every version the requirement allows; the extras and labels are free unless named."""
    free = replace(lead, requirement=replace(lead.requirement, url=None), origin="command line")
    rows = list(choose(free, situation, knowledge).builds)
    for other in FAMILIES.get(lead.requirement.raw.strip().lower(), ()):
        named = replace(free, requirement=replace(free.requirement, name=other))
        rows += choose(named, situation, knowledge).builds
    versions = {b.version for b in rows}
    if lead.requirement.local is None:
        more = [
            b
            for b in knowledge.builds(lead.name, machine=situation.machine)
            if b.version in versions and b not in rows and not b.yanked and b.device == "cuda"
        ]
        if lead.requirement.extras:
            more = [b for b in more if b.extra in lead.requirement.extras]
        more = [b for b in more if "local" not in (b.extra or "") and b.extra not in OTHER_NAMES_OF_EXTRAS]
        rows += more
    wants_gpu = bool(situation.cards) or situation.driver.known
    if wants_gpu:
        rows = [b for b in rows if b.device == "cuda"] or rows
    if lead.name == "tensorflow" and not lead.requirement.extras:
        bundled = {b.version for b in rows if b.extra == "and-cuda"}
        if situation.base is None:
            rows = [b for b in rows if b.extra == "and-cuda" or b.version not in bundled]
    return sorted(
        rows,
        key=lambda b: (version_key(b.version), b.default, b.index == "pypi", version_key(b.wheel_cuda or "0")),
        reverse=True,
    )


def _search(
    lead: Wanted, situation: Situation, knowledge: Knowledge
) -> tuple[Build | None, tuple[dict[str, Any], ...]]:
    best: tuple[Build, FitVerdict] | None = None
    rejected: list[dict[str, Any]] = []
    for build in _builds(lead, situation, knowledge):
        if best is not None and build.version != best[0].version:
            break
        verdict, why = _verdict(lead, build, situation, knowledge)
        good = verdict in GOOD
        if good and (best is None or RANK[verdict] < RANK[best[1]]):
            if best is not None:
                rejected.append(
                    _rejection(best[0], best[1], "it runs, but another build of the version does so natively")
                )
            best = (build, verdict)
        elif good:
            rejected.append(_rejection(build, verdict, "it runs as well; the chosen one comes first"))
        else:
            rejected.append(_rejection(build, verdict, why))
    return (best[0] if best else None), tuple(_thin(rejected))


def _thin(rejected: list[dict[str, Any]], limit: int = 12) -> list[dict[str, Any]]:
    return rejected[:limit]


def _rejection(build: Build, verdict: FitVerdict, why: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        "build": describe(build),
        "wheel_cuda": build.wheel_cuda,
        "verdict": verdict,
        "reason": why,
    }
    if build.index_url:
        found["index_url"] = build.index_url
    return found


def _verdict(lead: Wanted, build: Build, situation: Situation, knowledge: Knowledge) -> tuple[FitVerdict, str]:
    if situation.python and not situation.python_soft and python_ok(build, situation.python) is False:
        return "does-not-fit", f"no wheel for Python {situation.python}"
    evaluation = evaluate(replace(lead, origin="command line"), build, situation, knowledge)
    outcomes = list(evaluation.general)
    for card in situation.cards:
        outcomes.extend(judge_for_card(card, situation, [evaluation], knowledge))
    outcomes = [o for o in outcomes if o.missing not in {("driver",), ("toolkit",)}]
    outcomes.append(outcome("wheel", "yes", describe(build), ""))
    bad = [o.finding for o in outcomes if o.finding.verdict in {"no", "unknown"}]
    return combine(outcomes), "; ".join(dict.fromkeys(f.evidence for f in bad))


def _exact(requirement: Requirement, build: Build) -> Requirement:
    label = build.local if build.local and not build.version.endswith(build.local) else None
    extras = (build.extra,) if build.extra else requirement.extras
    name = requirement.name if build.framework == "torch" else build.framework
    return replace(
        requirement, name=name, specifier=f"=={build.version}", local=label, extras=extras, url=None, from_file=False
    )


def _chosen(
    build: Build, got: Answer, exact: Requirement, situation: Situation, knowledge: Knowledge
) -> dict[str, Any]:
    base = pick_base(build, situation, knowledge)
    written = exact if exact.local is None or re.match(r"cu\d|cpu", exact.local) else replace(exact, local=None)
    chosen: dict[str, Any] = {
        "requirement": text_of(written),
        "wheel_cuda": build.wheel_cuda,
        "cudnn": build.cudnn,
        "python": pick_python(build, situation),
        "index": build.index,
        "index_url": build.index_url,
        "base": base,
        "base_flavour": read_image(base, knowledge).flavour if base is not None else None,
        "sm": list(build.sm) if build.sm else None,
    }
    if "also" in got.chosen:
        chosen["also"] = got.chosen["also"]
    return {k: v for k, v in chosen.items() if v is not None}
