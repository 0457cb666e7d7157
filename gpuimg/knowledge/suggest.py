"""What runs instead: another build of the same version, the newest version that does run there, a driver to ask for.

Searched with the very rules that said no, so that no advice is given that they would refuse.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gpuimg.knowledge.base import Knowledge, version_key
from gpuimg.knowledge.images import newest_cuda_tag
from gpuimg.knowledge.rules.driver import DriverFacts, Forward, forward_state, lowest_driver
from gpuimg.knowledge.rules.numbers import parts
from gpuimg.knowledge.rules.outcome import RANK
from gpuimg.knowledge.rules.sm import toolkit_knows
from gpuimg.knowledge.rules.wheel import python_ok
from gpuimg.knowledge.selection import cuda_of, describe
from gpuimg.knowledge.situation import Situation, Wanted
from gpuimg.knowledge.tables import Build
from gpuimg.nouns import FitVerdict

if TYPE_CHECKING:
    from gpuimg.knowledge.fit import Judged

GOOD: tuple[FitVerdict, ...] = ("fits", "fits-with-compat", "fits-via-ptx")
SUCCESSOR = {"tensorflow-gpu": "tensorflow", "mindspore-gpu": "mindspore"}


def suggest(situation: Situation, judged: Judged, knowledge: Knowledge) -> tuple[dict[str, Any], ...]:
    """At most four pieces of advice, the closest to what was asked first."""
    from gpuimg.knowledge.fit import primary

    if any(c.foreign for c in situation.cards):
        return ()
    blocked = [e for e in judged.evaluations if any(o.finding.verdict == "no" for o in _of(e, situation, knowledge))]
    lead = primary(blocked or judged.evaluations)
    if lead is None:
        wanted = next(iter(situation.wanted), None)
        if wanted is None or not knowledge.builds(wanted.name):
            return (
                _bases(situation, knowledge) if situation.base is not None and judged.verdict == "does-not-fit" else ()
            )
        return tuple(_search(wanted, None, situation, knowledge))[:4]
    if judged.verdict == "unknown" and all(o.finding.verdict != "no" for o in judged.outcomes):
        return ()
    found = list(_search(lead.wanted, lead.build, situation, knowledge))
    if situation.base is not None and any(o.finding.rule in {"require", "base-driver", "sm"} and o.finding.verdict == "no"
                                          and situation.base.reference in o.finding.evidence for o in judged.outcomes):  # fmt: skip
        found.extend(_bases(situation, knowledge))
    found.extend(_forward(lead.build, situation, knowledge))
    unique: dict[str, dict[str, Any]] = {}
    for one in found:
        unique.setdefault(repr(sorted((k, str(v)) for k, v in one.items() if k != "why")), one)
    return tuple(unique.values())[:4]


def _of(evaluation: Any, situation: Situation, knowledge: Knowledge) -> Sequence[Any]:
    from gpuimg.knowledge.fit import judge_for_card

    cards = [
        o for c in situation.cards for o in judge_for_card(c, replace(situation, base=None), [evaluation], knowledge)
    ]
    return [*evaluation.general, *cards]


def _free(situation: Situation) -> Situation:
    """Another version may bring another base: a base with frameworks inside, or whose CUDA is the trouble, is given up."""
    return situation


def _search(wanted: Wanted, own: Build | None, situation: Situation, knowledge: Knowledge) -> Iterator[dict[str, Any]]:
    name = SUCCESSOR.get(wanted.name, wanted.name) if not knowledge.builds(wanted.name) else wanted.name
    free = Wanted(replace(wanted.requirement, local=None, url=None), "command line")
    plain = replace(
        situation, base=None, glibc=None if situation.base is not None else situation.glibc, python_soft=False
    )
    if situation.python_soft:
        plain = replace(plain, python=None)
    builds = _all_builds(name, wanted, plain, knowledge)
    if own is not None:
        same = [b for b in builds if b.version == own.version and b is not own]
        hit = _first(free, same, plain, knowledge)
        if hit is not None:
            yield _entry(name, hit[0], hit[1], plain, knowledge, "the same version in another build runs there")
    hit = _first(free, builds, plain, knowledge, skip=own)
    if hit is not None:
        yield _entry(name, hit[0], hit[1], plain, knowledge, "the newest version that runs there")
        yield from _modest(name, free, builds, hit[0], plain, knowledge)
    else:
        yield from _relaxed(name, free, builds, plain, knowledge)
        return
    if own is not None and plain.driver.known:
        yield from _better_driver(name, free, own, plain, knowledge)


def _modest(
    name: str, free: Wanted, builds: Sequence[Build], newest: Build, situation: Situation, knowledge: Knowledge
) -> Iterator[dict[str, Any]]:
    """Without a driver given: the newest version in the CUDA that asks least of it."""
    if situation.driver.known:
        return
    rest = [b for b in builds if b.version == newest.version and b.wheel_cuda]
    for build in sorted(rest, key=lambda b: parts(b.wheel_cuda or "0")):
        verdict = _verdict(free, build, situation, knowledge)
        if verdict in GOOD and build.wheel_cuda != newest.wheel_cuda:
            yield _entry(name, build, verdict, situation, knowledge, "the same in the CUDA that asks least of the driver")
            return


def _relaxed(
    name: str, free: Wanted, builds: Sequence[Build], situation: Situation, knowledge: Knowledge
) -> Iterator[dict[str, Any]]:
    """Nothing runs as things are: give up the Python, then the driver, then both."""
    better = DriverFacts("999.0" if not situation.driver.windows else None, None)
    drivable = _newest_driver(situation, knowledge)
    for python, driver in ((None, situation.driver), (situation.python, drivable), (None, drivable)):
        if driver is None or (python == situation.python and driver == situation.driver):
            continue
        loose = replace(situation, python=python, driver=driver)
        hit = _first(free, builds, loose, knowledge)
        if hit is None:
            continue
        build, verdict = hit
        if python is None and situation.python is not None:
            have = build.pythons or ()
            low = min(have, key=parts) if have else "?"
            why = f"the newest that runs there, with Python {low} or newer (Python {situation.python} has no version that does)"
        else:
            why = "the newest that runs there"
        entry = _entry(name, build, verdict, loose, knowledge, why)
        if driver != situation.driver:
            cuda = cuda_of(build)
            entry["driver"] = f">={_ask_driver(build, situation, knowledge)}" if cuda else None
            entry["why"] += (
                f"; ask for driver {entry['driver']} (now: {situation.driver.text if situation.driver.known else 'not given'})"
            )
        yield entry
        return
    del better


def _newest_driver(situation: Situation, knowledge: Knowledge) -> DriverFacts | None:
    """The newest driver that drives every card there."""
    highest = max((t.driver_linux for t in knowledge.toolkits if t.driver_linux), key=parts)
    limits = []
    for card in situation.cards:
        row = next((a for a in knowledge.architectures if a.compute_capability == card.compute_capability), None)
        if row is not None and row.last_driver_branch:
            limits.append(int(row.last_driver_branch.lstrip("R")))
    if limits:
        top = min(limits)
        known = [t.driver_linux for t in knowledge.toolkits if t.driver_linux and parts(t.driver_linux)[0] <= top]
        highest = max(known, key=parts)
    return DriverFacts(highest)


def _ask_driver(build: Build, situation: Situation, knowledge: Knowledge) -> str | None:
    """The driver to ask a provider for: native for the build, and new enough for the cards."""
    cuda = cuda_of(build)
    wanted = [knowledge.first_driver(cuda if "." in cuda else f"{cuda}.0")] if cuda else []
    for card in situation.cards:
        row = next((a for a in knowledge.architectures if a.compute_capability == card.compute_capability), None)
        if row is not None and row.first_driver_branch:
            wanted.append(row.first_driver_branch.lstrip("R"))
    known = [w for w in wanted if w]
    return max(known, key=parts) if known else None


def _better_driver(
    name: str, free: Wanted, own: Build, situation: Situation, knowledge: Knowledge
) -> Iterator[dict[str, Any]]:
    """The build that was asked for, were the driver newer."""
    newer = _newest_driver(situation, knowledge)
    cuda = cuda_of(own)
    if newer is None or cuda is None or _verdict(free, own, replace(situation, driver=newer), knowledge) not in GOOD:
        return
    entry = _entry(name, own, "fits", situation, knowledge, "as asked, with a newer driver")
    lowest = lowest_driver(cuda, knowledge)
    entry["driver"] = f">={_ask_driver(own, situation, knowledge) or lowest}"
    entry["why"] += f": ask for driver {entry['driver']}" + (
        f" (from {lowest} by minor-version compatibility)" if lowest else ""
    )
    yield entry


def _all_builds(name: str, wanted: Wanted, situation: Situation, knowledge: Knowledge) -> list[Build]:
    rows = [b for b in knowledge.builds(name, machine=situation.machine) if b.device == "cuda" and not b.yanked]
    rows = [b for b in rows if not version_key(b.version).is_prerelease and (b.extra or "").find("local") < 0]
    if name == "tensorflow":
        extra = {b.version for b in rows if b.extra == "and-cuda"}
        rows = [b for b in rows if b.extra == "and-cuda" or b.version not in extra]
    return sorted(
        rows,
        key=lambda b: (version_key(b.version), b.default, b.index == "pypi", version_key(b.wheel_cuda or "0")),
        reverse=True,
    )


def _first(
    wanted: Wanted, builds: Sequence[Build], situation: Situation, knowledge: Knowledge, *, skip: Build | None = None
) -> tuple[Build, FitVerdict] | None:
    """The first build in order that runs; within one version a native one is preferred. A missing driver is no bar."""
    best: tuple[Build, FitVerdict] | None = None
    for build in builds:
        if best is not None and build.version != best[0].version:
            break
        if build is skip:
            continue
        if situation.python and python_ok(build, situation.python) is False:
            continue
        verdict = _verdict(wanted, build, situation, knowledge)
        if verdict in GOOD and (best is None or RANK[verdict] < RANK[best[1]]):
            best = (build, verdict)
    return best


def _verdict(wanted: Wanted, build: Build, situation: Situation, knowledge: Knowledge) -> FitVerdict:
    from gpuimg.knowledge.fit import evaluate, judge_for_card
    from gpuimg.knowledge.rules.outcome import combine, outcome

    evaluation = evaluate(wanted, build, situation, knowledge)
    outcomes = list(evaluation.general)
    for card in situation.cards:
        outcomes.extend(judge_for_card(card, situation, [evaluation], knowledge))
    if not situation.driver.known:
        outcomes = [o for o in outcomes if o.missing != ("driver",)]
    outcomes = [o for o in outcomes if o.missing not in {("toolkit",)}]
    if not situation.cards and situation.driver.known and (cuda := cuda_of(build)):
        from gpuimg.knowledge.rules.driver import judge_driver

        outcomes.append(judge_driver(cuda, situation.driver, knowledge, subject=describe(build)))
    outcomes.append(outcome("wheel", "yes", describe(build), ""))
    return combine(outcomes)


def _entry(
    name: str, build: Build, verdict: FitVerdict, situation: Situation, knowledge: Knowledge, why: str
) -> dict[str, Any]:
    from gpuimg.knowledge.fit import pick_base, pick_python

    label = (
        f"+{build.local}"
        if build.local and not build.version.endswith(build.local) and build.local.startswith("cu")
        else ""
    )
    extra = f"[{build.extra}]" if build.extra else ""
    entry: dict[str, Any] = {
        "requirement": {f"{name}{extra}": f"{build.version}{label}"}, "wheel_cuda": build.wheel_cuda, "verdict": verdict,
        "python": pick_python(build, situation),
    }  # fmt: skip
    if build.index_url:
        entry["index_url"] = build.index_url
    base = pick_base(build, situation, knowledge)
    if base:
        entry["base"] = base
    if not situation.driver.known and (driver := _ask_driver(build, situation, knowledge)):
        entry["driver"] = f">={driver}"
    entry["why"] = why
    return entry


def _bases(situation: Situation, knowledge: Knowledge) -> tuple[dict[str, Any], ...]:
    """Another base of the same flavour that the driver and the cards take, or a driver for this one."""
    from gpuimg.knowledge.images import read_image
    from gpuimg.knowledge.judging import judge_base_for_card

    base = situation.base
    if base is None or base.base_cuda is None:
        return ()
    found: list[dict[str, Any]] = []
    minors = sorted({t.base_cuda for t in knowledge.base_tags}, key=parts, reverse=True)
    for cuda in minors:
        if parts(cuda) == parts(base.base_cuda):
            continue
        reference = newest_cuda_tag(knowledge, cuda, flavour=base.flavour or "runtime")
        if reference is None:
            continue
        facts = read_image(reference, knowledge)
        other = replace(situation, base=facts)
        outcomes = [
            o for c in situation.cards if c.compute_capability
            for o in judge_base_for_card(facts, c, c.compute_capability, other, knowledge, bundled=False)
        ]  # fmt: skip
        if outcomes and all(o.finding.verdict in {"yes", "warn"} or o.missing == ("driver",) for o in outcomes):
            found.append(
                {"base": reference, "base_cuda": cuda, "why": "the newest CUDA base this driver and these cards take"}
            )
            break
    native = knowledge.first_driver(base.base_cuda)
    knows = all(
        toolkit_knows(c.compute_capability, base.base_cuda, knowledge) is not False
        for c in situation.cards
        if c.compute_capability
    )
    if native and knows:
        found.append(
            {"base": base.reference, "driver": f">={native}", "why": f"this base as it is: ask for driver ≥ {native}"}
        )
    return tuple(found)


def _forward(build: Build, situation: Situation, knowledge: Knowledge) -> Iterator[dict[str, Any]]:
    """A data-centre card under an old driver: a base whose cuda-compat carries the wheel's CUDA."""
    cuda = cuda_of(build)
    if (
        cuda is None
        or "." not in cuda
        or situation.base is not None
        or situation.runtime == "bare"
        or not situation.driver.known
    ):
        return
    if not situation.cards or not all(c.data_centre for c in situation.cards):
        return
    if _verdict(Wanted(_bare(build), "command line"), build, situation, knowledge) in GOOD:
        return
    if not forward_state(Forward(cuda), situation.driver, knowledge):
        return
    reference = newest_cuda_tag(knowledge, cuda, flavour="base")
    free = Wanted(replace(_bare(build)), "command line")
    if reference is None:
        return
    from gpuimg.knowledge.images import read_image

    based = replace(situation, base=read_image(reference, knowledge))
    if _verdict(free, build, based, knowledge) in GOOD:
        yield {
            "requirement": {build.framework: build.version}, "wheel_cuda": cuda, "base": reference,
            "why": f"its cuda-compat {cuda} carries data-centre cards over {situation.driver.text} (forward compatibility)",
        }  # fmt: skip


def _bare(build: Build) -> Any:
    from gpuimg.nouns import Requirement

    return Requirement(name=build.framework, specifier=f"=={build.version}")
