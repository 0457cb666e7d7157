"""Pins that exclude each other: in one file, and between packages by their own metadata. NumPy's ABI is one of them."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from gpuimg.knowledge import Knowledge
from gpuimg.knowledge.rules.companions import ABI_BREAKS, pins
from gpuimg.knowledge.tables import Build
from gpuimg.lint.facts import (
    Item,
    PackageSet,
    build_of,
    finding,
    matching_versions,
    specifier_of,
    version_of,
)
from gpuimg.nouns import LintFinding, LintSeverity, Requirement
from gpuimg.project.entries import exact_version

RESOLVER = "https://pip.pypa.io/en/stable/topics/dependency-resolution/"
LINKED = ("torchvision", "torchaudio", "torchtext", "xformers", "vllm", "flash-attn", "sglang", "deepspeed")


def duplicates(packages: PackageSet, kb: Knowledge) -> Iterator[LintFinding]:
    """The same package twice in what pip solves together, with pins that no version meets."""
    seen: dict[tuple[int, str], Item] = {}
    for item in () if packages.kind == "lock" else packages.items:
        if item.req.marker or item.req.url or item.conditional:
            continue
        key = (item.group, item.req.name)
        first = seen.setdefault(key, item)
        if first is item:
            yield from _contradiction(item.req, kb)
            continue
        a, b = exact_version(first.req), exact_version(item.req)
        if a and b and version_of(a) != version_of(b):
            yield finding(
                "duplicate", "error", item.req,
                f"{item.req.name} is pinned twice: {a} in line {first.req.line} and {b} here; pip refuses the conflict",
                "keep one of the two pins", RESOLVER,
            )  # fmt: skip
        elif (a or b) and not (a and b):
            pinned, open_one = (a, item.req) if a else (b, first.req)
            allowed, version = specifier_of(open_one.specifier), version_of(pinned)
            if allowed is not None and version is not None and not allowed.contains(version, prereleases=True):
                yield finding(
                    "duplicate", "error", item.req,
                    f"{item.req.name} is asked for twice: {first.req.specifier} in line {first.req.line} and {item.req.specifier} here; "
                    "no version meets both", "keep one of the two", RESOLVER,
                )  # fmt: skip


def _contradiction(one: Requirement, kb: Knowledge) -> Iterator[LintFinding]:
    parsed = specifier_of(one.specifier)
    if parsed is None or "," not in one.specifier:
        return
    known = kb.versions(one.name)
    if known and not any(parsed.contains(v, prereleases=True) for v in known):
        highest = version_of(known[-1])
        bounds = [version_of(c.version.rstrip(".*")) for c in parsed]
        if any(b is None or (highest is not None and b > highest) for b in bounds):
            return
        yield finding(
            "contradiction",
            "error",
            one,
            f"no version of {one.name} meets {one.specifier}",
            "widen the range",
            RESOLVER,
        )


def unknown_versions(packages: PackageSet, kb: Knowledge) -> Iterator[LintFinding]:
    """An exact pin of a release that was never published."""
    for item in packages.items:
        one = item.req
        version = exact_version(one)
        parsed = version_of(version)
        if one.url or version is None or parsed is None or parsed.is_prerelease or one.name in kb.aliases:
            continue
        known = kb.versions(one.name)
        if len(known) < 5 or kb.builds(one.name, version):
            continue
        parsed_known = [v for k in known if (v := version_of(k)) is not None]
        if not parsed_known or parsed > max(parsed_known) or parsed < min(parsed_known):
            continue
        near = sorted(parsed_known, key=lambda v: _distance(v, parsed))[:3]
        severity: LintSeverity = (
            "error" if one.name in {"torch", "torchvision", "torchaudio", "tensorflow", "vllm"} else "warning"
        )
        yield finding(
            "no-such-version", severity, one, f"{one.name} {version} is not among the published versions known on {kb.date}",
            f"nearest: {', '.join(map(str, sorted(near)))}", f"https://pypi.org/project/{one.name}/#history",
        )  # fmt: skip


def _distance(a: Version, b: Version) -> tuple[int, ...]:
    left, right = [*a.release, 0, 0, 0][:3], [*b.release, 0, 0, 0][:3]
    return tuple(abs(x - y) for x, y in zip(left, right, strict=True))


def pairs(packages: PackageSet, kb: Knowledge) -> Iterator[LintFinding]:
    """Every pin in the metadata of what is asked for, against what else is asked for."""
    by_name = {i.req.name: i for i in packages.items if not i.conditional and not i.req.marker}
    for item in () if packages.kind == "lock" else by_name.values():
        if item.req.url:
            continue
        version = exact_version(item.req)
        if version is not None:
            build = build_of(kb, item, packages.machine) or next(
                (b for b in kb.builds(item.req.name, version, machine=packages.machine)), None
            )
            if build is not None:
                yield from _exact(item, build, by_name, packages, kb)
        else:
            yield from _open(item, by_name, packages, kb)


def _exact(
    item: Item, build: Build, by_name: dict[str, Item], packages: PackageSet, kb: Knowledge
) -> Iterator[LintFinding]:
    for name, wanted in pins(build).items():
        other = by_name.get(name)
        if other is None or name == item.req.name or not len(wanted):
            continue
        # CPU-only rows of other processors and rows of extras hold less metadata: only for torch's pins do they tell.
        rivals = [
            b for b in kb.builds(item.req.name, build.version)
            if b.index == "pypi" and (name == "torch" or (b.machine == build.machine and b.extra == build.extra))
        ]  # fmt: skip
        if any(name not in pins(b) for b in rivals):
            continue  # another wheel of the very release does without the pin: it is documentation's, not the metadata's
        if name == "numpy" and item.req.name in NUMPY_1:
            continue  # an ABI that pip does not know of: numpy_abi() says it
        if _meet(wanted, other, kb):
            continue
        together = item.group == other.group
        linked = item.req.name in LINKED and name == "torch"
        newer = other if (other.req.line or 0) > (item.req.line or 0) else item
        has = exact_version(other.req) or other.req.specifier
        message = f"{item.req.name} {build.version} needs {name}{wanted}, but {name} {has} is asked for"
        message += ": pip cannot install both" if together else ": the later install replaces the earlier or breaks it"
        yield finding(
            "pair", "error" if together or linked else "warning", newer.req, message, _pair_fix(item, name, wanted, other, kb),
            build.source or RESOLVER,
        )  # fmt: skip


def torchtext_end(packages: PackageSet, kb: Knowledge) -> Iterator[LintFinding]:
    """torchtext's last release, 0.18.0, is compiled against torch 2.3, though its metadata takes every later torch."""
    text, torch = packages.get("torchtext"), packages.get("torch")
    if text is None or torch is None or text.conditional or torch.conditional:
        return
    have = version_of(exact_version(torch.req) or "")
    if exact_version(text.req) not in {None, "0.18.0"} or have is None or have < Version("2.4"):
        return
    yield finding(
        "pair", "warning", text.req,
        f"torchtext ended with 0.18.0, compiled against torch 2.3: beside torch {have} its library does not load (undefined symbol)",
        "do without torchtext, or torch==2.3.1", "https://github.com/pytorch/text#installation",
    )  # fmt: skip


def _meet(wanted: SpecifierSet, other: Item, kb: Knowledge) -> bool:
    version = exact_version(other.req)
    if version is not None:
        parsed = version_of(version)
        return parsed is None or wanted.contains(parsed, prereleases=True)
    known = matching_versions(kb, other.req)
    return not known or any(wanted.contains(v, prereleases=True) for v in known)


def _pair_fix(item: Item, name: str, wanted: SpecifierSet, other: Item, kb: Knowledge) -> str:
    """Both ways out: the other package's version, or this package's version that belongs to it."""
    ways = [f"{name}{wanted}"]
    version = exact_version(other.req)
    if version is not None:
        fitting = [
            b.version for b in kb.builds(item.req.name)
            if not b.yanked and name in pins(b) and pins(b)[name].contains(version, prereleases=True)
            and not (version_of(b.version) or Version("0")).is_prerelease
        ]  # fmt: skip
        if fitting:
            ways.append(f"{item.req.name}=={fitting[-1]}, which belongs to {name} {version}")
    return "either " + ", or ".join(ways) if len(ways) > 1 else ways[0]


def _open(item: Item, by_name: dict[str, Item], packages: PackageSet, kb: Knowledge) -> Iterator[LintFinding]:
    """An unpinned package beside a pinned one: does the newest accept the pin, or any at all?"""
    name = item.req.name
    candidates = matching_versions(kb, item.req)
    if not candidates or packages.kind == "lock":
        return
    for other_name in ("torch", "tensorflow", "jax", "numpy"):
        other = by_name.get(other_name)
        pinned = exact_version(other.req) if other else None
        if other is None or pinned is None or other_name == name:
            continue
        accepting: list[str] = []
        wanted_newest: SpecifierSet | None = None
        relevant = False
        for version in reversed(candidates):
            builds = [b for b in kb.builds(name, version, machine=packages.machine) if not b.yanked]
            build = next((b for b in builds if b.default), builds[0] if builds else None)
            if build is None:
                continue
            wanted = pins(build).get(other_name)
            if wanted is None or not len(wanted):
                accepting.append(version)
                break
            relevant = True
            wanted_newest = wanted if wanted_newest is None else wanted_newest
            if wanted.contains(pinned, prereleases=True):
                accepting.append(version)
                break
        if not relevant or wanted_newest is None:
            continue
        newest_version = candidates[-1]
        if not accepting:
            together = item.group == other.group
            yield finding(
                "pair", "error" if together and other_name != "numpy" else "warning", item.req,
                f"no {name} that {item.req.specifier or 'is published'} allows accepts {other_name}=={pinned} "
                f"({name} {newest_version} requires {other_name}{wanted_newest})",
                f"pin {name} to a version made for {other_name} {pinned}", RESOLVER,
            )  # fmt: skip
        elif accepting[-1] != newest_version and name in {
            "vllm",
            "torchvision",
            "torchaudio",
            "torchtext",
            "xformers",
            "sglang",
        }:
            severity: LintSeverity = (
                "warning" if name in {"vllm", "sglang", "xformers"} or item.group != other.group else "note"
            )
            apart = "" if item.group == other.group else f"; installed on its own it replaces {other_name} {pinned}"
            yield finding(
                "unpinned-beside-pin", severity, item.req,
                f"{name} has no pin beside {other_name}=={pinned}: {name} {newest_version} requires {other_name}{wanted_newest}, "
                f"so the two conflict or pip goes back to an old {name} ({accepting[-1]}); wheel_cuda moves with it{apart}",
                f"pin {name}=={accepting[-1]}", RESOLVER,
            )  # fmt: skip


NUMPY_1 = {"torch": "2.3.0", "torchvision": "0.18.0", "onnxruntime-gpu": "1.19.0", "onnxruntime": "1.19.0"}
"""First version built for NumPy 2 of packages whose metadata does not say so (release notes of each)."""


def numpy_abi(packages: PackageSet, kb: Knowledge) -> Iterator[LintFinding]:
    """Packages compiled against NumPy 1 beside NumPy 2."""
    numpy = packages.get("numpy")
    spec = numpy.req.specifier if numpy else ""
    parsed = specifier_of(spec)
    if parsed is None or (numpy is not None and numpy.req.url):
        return
    allows_1 = any(parsed.contains(v) for v in ("1.26.4", "1.24.4", "1.23.5", "1.21.6", "1.19.5", "1.22.4", "1.16.6"))
    exact = exact_version(numpy.req) if numpy else None
    if exact is not None:
        allows_1 = (version_of(exact) or Version("1")) < Version("2")
    allows_2 = not numpy or any(parsed.contains(v) for v in ("2.0.0", "2.0.2", "2.1.3", "2.2.6", "2.3.0", "2.5.0"))
    if exact is not None:
        allows_2 = not allows_1
    if not allows_2:
        return
    if packages.python is not None and _minor(packages.python) < 9:
        return
    for item in packages.items:
        first = NUMPY_1.get(item.req.name)
        version = version_of(exact_version(item.req))
        if item.conditional or item.req.marker:
            continue
        build = build_of(kb, item, packages.machine)
        limit = pins(build).get("numpy") if build is not None else None
        declared = (
            limit is not None
            and len(limit) > 0
            and not any(limit.contains(v) for v in ("2.0.0", "2.1.0", "2.2.0", "2.3.0", "2.5.0"))
        )
        by_table = first is not None and version is not None and version < Version(first)
        if not declared and not by_table:
            continue
        pythons = build.pythons if build is not None else None
        if packages.python is None and pythons is not None and all(_minor(p) < 9 for p in pythons):
            continue
        subject = f"{item.req.name} {exact_version(item.req)}"
        if declared and item.req.name not in NUMPY_1:
            continue  # pip reads it, and pairs() says it
        if not allows_1:
            yield finding(
                "numpy-abi", "error", numpy.req if numpy else item.req,
                f"{subject} was compiled against NumPy 1; numpy{spec} is NumPy 2: 'Numpy is not available' at the first conversion",
                "numpy<2", ABI_BREAKS,
            )  # fmt: skip
        else:
            certain = numpy is not None and packages.python is not None
            yield finding(
                "numpy-abi", "warning", numpy.req if numpy else item.req,
                f"{subject} was compiled against NumPy 1, and nothing keeps numpy below 2"
                + (": pip installs NumPy 2 and conversions fail" if certain else ""),
                "add numpy<2", ABI_BREAKS,
            )  # fmt: skip
            return


def _minor(python: str) -> int:
    return int(python.split(".")[1])
