"""What runs instead: another build of the same version, the newest version that does run there, a driver to ask for.

Searched with the very rules that said no, so that no advice is given that they would refuse.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gpuimg.knowledge.base import Knowledge, version_key
from gpuimg.knowledge.images import ImageFacts, newest_cuda_tag, read_image
from gpuimg.knowledge.judging import judge_base_for_card
from gpuimg.knowledge.rules.driver import (
    DriverFacts,
    Forward,
    forward_state,
    judge_card_driver,
    judge_driver,
    lowest_driver,
)
from gpuimg.knowledge.rules.numbers import parts
from gpuimg.knowledge.rules.outcome import RANK, Outcome, combine, outcome
from gpuimg.knowledge.rules.sm import toolkit_knows
from gpuimg.knowledge.rules.wheel import python_ok
from gpuimg.knowledge.selection import cuda_of, describe, is_exact
from gpuimg.knowledge.situation import Situation, Wanted
from gpuimg.knowledge.tables import Build
from gpuimg.nouns import FitVerdict

if TYPE_CHECKING:
    from gpuimg.knowledge.fit import Judged

GOOD: tuple[FitVerdict, ...] = ("fits", "fits-with-compat", "fits-via-ptx")
SUCCESSOR = {"tensorflow-gpu": "tensorflow", "mindspore-gpu": "mindspore"}
OTHER_NAMES_OF_EXTRAS = {"cuda", "cuda12-pip", "cuda11-pip"}
NGC = {"torch": "nvcr.io/nvidia/pytorch", "tensorflow": "nvcr.io/nvidia/tensorflow"}
LIMIT = 4
Entry = dict[str, Any]


@dataclass(frozen=True)
class _Hunt:
    """What is looked for: a package, under a situation whose base is free."""

    name: str
    wanted: Wanted
    builds: tuple[Build, ...]
    situation: Situation
    knowledge: Knowledge

    def verdict(self, build: Build, situation: Situation | None = None) -> FitVerdict:
        """The verdict of a build. A missing driver or host toolkit is no bar to advice."""
        from gpuimg.knowledge.fit import evaluate, judge_for_card

        where = situation or self.situation
        evaluation = evaluate(self.wanted, build, where, self.knowledge)
        outcomes = list(evaluation.general)
        for card in where.cards:
            outcomes.extend(judge_for_card(card, where, [evaluation], self.knowledge))
        if not where.driver.known:
            outcomes = [o for o in outcomes if o.missing != ("driver",)]
        outcomes = [o for o in outcomes if o.missing != ("toolkit",)]
        cuda = cuda_of(build)
        if not where.cards and where.driver.known and cuda:
            outcomes.append(judge_driver(cuda, where.driver, self.knowledge, subject=describe(build)))
        return combine([*outcomes, outcome("wheel", "yes", describe(build), "")])

    def first(
        self, builds: Sequence[Build], situation: Situation | None = None, *, skip: Build | None = None
    ) -> tuple[Build, FitVerdict] | None:
        """The first build in order that runs; within one version the one that runs best."""
        where = situation or self.situation
        best: tuple[Build, FitVerdict] | None = None
        for build in builds:
            if best is not None and build.version != best[0].version:
                break
            if build is skip or (where.python and python_ok(build, where.python) is False):
                continue
            verdict = self.verdict(build, where)
            if verdict in GOOD and (best is None or RANK[verdict] < RANK[best[1]]):
                best = (build, verdict)
        return best

    def entry(self, build: Build, verdict: FitVerdict, why: str, situation: Situation | None = None) -> Entry:
        """One piece of advice as the document has it."""
        from gpuimg.knowledge.fit import pick_base, pick_python

        where = situation or self.situation
        label = f"+{build.local}" if build.local and re.match(r"cu\d", build.local) else ""
        extra = f"[{build.extra}]" if build.extra else ""
        entry: Entry = {
            "requirement": {f"{self.name}{extra}": f"{build.version}{label}"},
            "wheel_cuda": build.wheel_cuda,
            "verdict": verdict,
            "python": pick_python(build, where),
        }
        if build.index_url:
            entry["index_url"] = build.index_url
        base = pick_base(build, where, self.knowledge)
        if base:
            entry["base"] = base
        if not where.driver.known:
            entry["driver"] = self.ask_driver(build)
        entry["why"] = why
        return {k: v for k, v in entry.items() if v is not None}

    def ask_driver(self, build: Build) -> str | None:
        """The driver to ask a provider for: native for the build, new enough for the cards, not too new for them."""
        cuda = cuda_of(build)
        wanted = [self.knowledge.first_driver(cuda if "." in cuda else f"{cuda}.0")] if cuda else []
        last: list[int] = []
        for card in self.situation.cards:
            row = _architecture(card.compute_capability, self.knowledge)
            if row is not None and row.first_driver_branch:
                wanted.append(row.first_driver_branch.lstrip("R"))
            if row is not None and row.last_driver_branch:
                last.append(int(row.last_driver_branch.lstrip("R")))
        known = [w for w in wanted if w]
        if not known:
            return None
        return f">={max(known, key=parts)}" + (f", branch {min(last)} at the newest" if last else "")


def _architecture(capability: str | None, knowledge: Knowledge) -> Any:
    return next((a for a in knowledge.architectures if a.compute_capability == capability), None)


def suggest(situation: Situation, judged: Judged, knowledge: Knowledge) -> tuple[Entry, ...]:
    """At most four pieces of advice, the closest to what was asked first."""
    from gpuimg.knowledge.fit import primary

    if any(c.foreign for c in situation.cards):
        return ()
    refused = [o for o in judged.outcomes if o.finding.verdict == "no"]
    blocked = [e for e in judged.evaluations if _blocked(e, situation, knowledge)]
    found: list[Entry] = []
    if any(o.finding.rule in {"companions", "numpy"} for o in refused):
        found.extend(_companions(judged, knowledge))
    lead = primary(blocked) or (primary(judged.evaluations) if not found else None)
    if lead is not None and refused:
        hunt = _hunt(lead.wanted, situation, knowledge)
        found.extend(_search(hunt, lead.build, refused, based=situation.base is not None))
    elif lead is None and not found:
        found.extend(_unbuilt(situation, knowledge, refused))
    base = situation.base
    if base is not None and any(base.reference in o.finding.evidence for o in refused):
        found.extend(_ngc_tags(base, situation, knowledge) if base.kind == "ngc" else _bases(situation, knowledge))
    unique: dict[str, Entry] = {}
    for one in found:
        unique.setdefault(repr(sorted((k, str(v)) for k, v in one.items() if k not in {"why", "verdict"})), one)
    return tuple(unique.values())[:LIMIT]


def _blocked(evaluation: Any, situation: Situation, knowledge: Knowledge) -> bool:
    from gpuimg.knowledge.fit import judge_for_card

    free = replace(situation, base=None)
    outcomes = [o for c in situation.cards for o in judge_for_card(c, free, [evaluation], knowledge)]
    return any(o.finding.verdict == "no" for o in (*evaluation.general, *outcomes))


def _hunt(wanted: Wanted, situation: Situation, knowledge: Knowledge) -> _Hunt:
    name = SUCCESSOR.get(wanted.name, wanted.name)
    if not any(b.pythons for b in knowledge.builds(name)):
        name = wanted.name
    free = Wanted(replace(wanted.requirement, name=name, local=None, url=None), "command line")
    kept_glibc = None if situation.base is not None else situation.glibc
    kept_python = None if situation.python_soft else situation.python
    plain = replace(situation, base=None, glibc=kept_glibc, python=kept_python, python_soft=False)
    return _Hunt(name, free, tuple(_all_builds(name, plain, knowledge)), plain, knowledge)


def _all_builds(name: str, situation: Situation, knowledge: Knowledge) -> list[Build]:
    rows = [b for b in knowledge.builds(name, machine=situation.machine) if b.device == "cuda" and not b.yanked]
    rows = [b for b in rows if not version_key(b.version).is_prerelease and "local" not in (b.extra or "")]
    rows = [b for b in rows if b.extra not in OTHER_NAMES_OF_EXTRAS]
    if name == "tensorflow":
        bundled = {b.version for b in rows if b.extra == "and-cuda"}
        rows = [b for b in rows if b.extra == "and-cuda" or b.version not in bundled]
    return sorted(
        rows,
        key=lambda b: (version_key(b.version), b.default, b.index == "pypi", version_key(b.wheel_cuda or "0")),
        reverse=True,
    )


def _search(hunt: _Hunt, own: Build, refused: Sequence[Outcome], *, based: bool) -> Iterator[Entry]:
    """Around a build that was refused. ``based``: a base image was given, so another one may be the cure."""
    good = hunt.verdict(own)
    if good in GOOD:
        if based:
            yield hunt.entry(own, good, "as asked, on another base")
        return
    same = [b for b in hunt.builds if b.version == own.version and b is not own and not _alike(b, own)]
    hit = hunt.first(same)
    if hit is not None:
        yield hunt.entry(*hit, "the same version in another build runs there")
    hit = hunt.first(hunt.builds, skip=own)
    if hit is None:
        yield from _relaxed(hunt)
        yield from _ngc_of(hunt)
        return
    yield hunt.entry(*hit, "the newest version that runs there")
    yield from _nearest(hunt, own, hit[0])
    yield from _modest(hunt, hit[0])
    if any(o.finding.rule in {"driver", "gpu-driver", "base-driver"} for o in refused):
        yield from _better_driver(hunt, own)
        yield from _forward(hunt, own)


def _nearest(hunt: _Hunt, own: Build, newest: Build) -> Iterator[Entry]:
    """The version next to the one asked for: what a pinned project moves to with the least change."""
    asked = version_key(own.version)
    later = [b for b in hunt.builds if asked < version_key(b.version) < version_key(newest.version)]
    # ``builds`` goes from the newest version down; within a version its order is kept.
    versions = list(dict.fromkeys(b.version for b in later))[::-1]
    hit = hunt.first([b for v in versions for b in later if b.version == v])
    if hit is not None:
        yield hunt.entry(*hit, "the next version after the one asked for that runs there")


def _alike(build: Build, own: Build) -> bool:
    return build.wheel_cuda == own.wheel_cuda and build.sm == own.sm and build.device == own.device


def _unbuilt(situation: Situation, knowledge: Knowledge, refused: Sequence[Outcome]) -> Iterator[Entry]:
    """No build could be chosen: a label or a version that does not exist, or is not known."""
    wanted = next((w for w in situation.wanted if knowledge.builds(w.name)), None)
    if wanted is None:
        return
    hunt = _hunt(wanted, situation, knowledge)
    if refused and is_exact(wanted.requirement):
        version = wanted.requirement.specifier.lstrip("=")
        hit = hunt.first([b for b in hunt.builds if version_key(b.version) == version_key(version)])
        if hit is not None:
            yield hunt.entry(*hit, "the same version in a build that exists")
    hit = hunt.first(hunt.builds)
    if hit is not None:
        yield hunt.entry(*hit, "the newest known version that runs there")


def _modest(hunt: _Hunt, newest: Build) -> Iterator[Entry]:
    """Without a driver given: the newest version in the CUDA that asks least of it."""
    if hunt.situation.driver.known:
        return
    rest = [b for b in hunt.builds if b.version == newest.version and b.wheel_cuda]
    for build in sorted(rest, key=lambda b: parts(b.wheel_cuda or "0")):
        verdict = hunt.verdict(build)
        if verdict in GOOD and build.wheel_cuda != newest.wheel_cuda:
            yield hunt.entry(build, verdict, "the same in the CUDA that asks least of the driver")
            return


def _relaxed(hunt: _Hunt) -> Iterator[Entry]:
    """Nothing runs as things are: give up the Python, then the driver, then both."""
    situation = hunt.situation
    drivable = _newest_driver(situation, hunt.knowledge)
    for python, driver in ((None, situation.driver), (situation.python, drivable), (None, drivable)):
        if python == situation.python and driver == situation.driver:
            continue
        loose = replace(situation, python=python, driver=driver)
        hit = hunt.first(hunt.builds, loose)
        if hit is None:
            continue
        build, verdict = hit
        why = "the newest version that runs there"
        if python is None and situation.python is not None:
            low = min(build.pythons, key=parts) if build.pythons else "another"
            why += f", with Python {low} or newer: for Python {situation.python} there is none"
        entry = hunt.entry(build, verdict, why, loose)
        if driver != situation.driver:
            entry["driver"] = hunt.ask_driver(build)
            now = situation.driver.text if situation.driver.known else "not given"
            entry["why"] += f"; ask for a driver {entry['driver']} (now: {now})"
        yield entry
        return


def _newest_driver(situation: Situation, knowledge: Knowledge) -> DriverFacts:
    """The newest driver of the table that drives every card there."""
    known = [t.driver_linux for t in knowledge.toolkits if t.driver_linux]
    for card in situation.cards:
        row = _architecture(card.compute_capability, knowledge)
        if row is not None and row.last_driver_branch:
            top = int(row.last_driver_branch.lstrip("R"))
            known = [d for d in known if parts(d)[0] <= top]
    return DriverFacts(max(known, key=parts))


def _better_driver(hunt: _Hunt, own: Build) -> Iterator[Entry]:
    """The build that was asked for, were the driver another."""
    cuda = cuda_of(own)
    newer = replace(hunt.situation, driver=_newest_driver(hunt.situation, hunt.knowledge))
    if cuda is None or hunt.verdict(own, newer) not in GOOD:
        return
    entry = hunt.entry(own, "fits", "as asked")
    entry["driver"] = hunt.ask_driver(own)
    lowest = lowest_driver(cuda, hunt.knowledge)
    entry["why"] += f", with a driver {entry['driver']}"
    if lowest:
        entry["why"] += f" (from {lowest} by minor-version compatibility)"
    yield entry


def _forward(hunt: _Hunt, own: Build) -> Iterator[Entry]:
    """A data-centre card under an old driver: a base whose cuda-compat carries the wheel's CUDA."""
    cuda, situation = cuda_of(own), hunt.situation
    if cuda is None or "." not in cuda or situation.runtime == "bare" or not situation.driver.known:
        return
    if not situation.cards or not all(c.data_centre for c in situation.cards):
        return
    reference = newest_cuda_tag(hunt.knowledge, cuda, flavour="base")
    if reference is None or not forward_state(Forward(cuda), situation.driver, hunt.knowledge):
        return
    based = replace(situation, base=read_image(reference, hunt.knowledge))
    verdict = hunt.verdict(own, based)
    if verdict in GOOD:
        entry = hunt.entry(
            own, verdict, f"cuda-compat {cuda} of that base carries data-centre cards over the old driver"
        )
        yield {**entry, "base": reference}


# --- companions -----------------------------------------------------------------------------------------------------


def _companions(judged: Judged, knowledge: Knowledge) -> Iterator[Entry]:
    """For packages that exclude each other: the release of one that belongs to the other."""
    from gpuimg.knowledge.rules.companions import pins

    chosen = {e.build.framework: e.build for e in judged.evaluations}
    for name, build in chosen.items():
        for other, specifier in pins(build).items():
            have = chosen.get(other)
            if have is None or specifier.contains(version_key(have.version).public, prereleases=True):
                continue
            if other == "numpy":
                yield {
                    "requirement": {"numpy": str(specifier)},
                    "why": f"{name} {build.version} wants numpy{specifier}",
                }
                continue
            mate = _mate(name, other, have, knowledge)
            if mate is not None:
                yield {
                    "requirement": {name: mate.version, other: have.version},
                    "why": f"{name} {mate.version} belongs to {other} {have.version}",
                }
            wanted = str(specifier).lstrip("=")
            yield {
                "requirement": {name: build.version, other: wanted},
                "why": f"{other} {wanted} is what {name} {build.version} wants",
            }


def _mate(name: str, other: str, have: Build, knowledge: Knowledge) -> Build | None:
    """The newest release of ``name`` whose pin takes that version of ``other``."""
    from gpuimg.knowledge.rules.companions import pins

    for build in reversed(knowledge.builds(name, machine=have.machine)):
        specifier = pins(build).get(other)
        if specifier is None or not str(specifier) or version_key(build.version).is_prerelease:
            continue
        if build.default and specifier.contains(version_key(have.version).public):
            return build
    return None


# --- images ---------------------------------------------------------------------------------------------------------


def _accepts(facts: ImageFacts, situation: Situation, knowledge: Knowledge) -> bool:
    if any(
        card.compute_capability and judge_card_driver(card.compute_capability, situation.driver, knowledge)
        for card in situation.cards
    ):
        return False
    other = replace(situation, base=facts)
    outcomes = [
        o
        for card in situation.cards
        if card.compute_capability
        for o in judge_base_for_card(facts, card, card.compute_capability, other, knowledge, bundled=False)
    ]
    return bool(outcomes) and all(o.finding.verdict in {"yes", "warn"} or o.missing == ("driver",) for o in outcomes)


def _bases(situation: Situation, knowledge: Knowledge) -> Iterator[Entry]:
    """Another base of the same flavour that the driver and the cards take, or a driver for this one."""
    base = situation.base
    if base is None or base.base_cuda is None:
        return
    minors = sorted({t.base_cuda for t in knowledge.base_tags}, key=parts, reverse=True)
    for cuda in minors:
        reference = newest_cuda_tag(knowledge, cuda, flavour=base.flavour or "runtime")
        if reference is None or parts(cuda) == parts(base.base_cuda):
            continue
        if _accepts(read_image(reference, knowledge), situation, knowledge):
            why = "the newest CUDA base this driver and these cards take"
            yield {"base": reference, "base_cuda": cuda, "why": why}
            break
    native = knowledge.first_driver(base.base_cuda)
    capabilities = [c.compute_capability for c in situation.cards if c.compute_capability]
    if native and all(toolkit_knows(c, base.base_cuda, knowledge) is not False for c in capabilities):
        yield {
            "base": base.reference,
            "driver": f">={native}",
            "why": f"this base as it is: ask for a driver ≥ {native}",
        }


def _ngc_tags(base: ImageFacts, situation: Situation, knowledge: Knowledge) -> Iterator[Entry]:
    """The newest release of the same NGC image that runs there."""
    rows = [r for r in knowledge.images if r.repository in {base.repository, f"nvcr.io/{base.repository}"}]
    for row in sorted(rows, key=lambda r: r.tag, reverse=True):
        if not re.match(r"^\d\d\.\d\d-", row.tag):
            continue
        facts = read_image(f"{row.repository}:{row.tag}", knowledge)
        if _accepts(facts, situation, knowledge):
            yield {
                "base": facts.reference,
                "base_cuda": facts.base_cuda,
                "requirement": dict(facts.frameworks),
                "why": "the newest release of that image that runs there",
            }
            return


def _ngc_of(hunt: _Hunt) -> Iterator[Entry]:
    """NVIDIA's own image of the framework, where no published wheel runs."""
    repository = NGC.get(hunt.name)
    if repository is None or hunt.situation.runtime == "bare" or not hunt.situation.cards:
        return
    facts = read_image(f"{repository}:latest", hunt.knowledge)
    yield from _ngc_tags(replace(facts, repository=repository), hunt.situation, hunt.knowledge)
