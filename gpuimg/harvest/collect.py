"""Reads the chosen wheels of every package, a few at a time, and keeps what was read in a cache by file name.

The cache makes an interrupted run resumable and a second run cheap: a wheel's content never changes under its name.
"""

from __future__ import annotations

import email.parser
import io
import json
import re
import tarfile
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import requests
from packaging.version import Version

from gpuimg.harvest import fatbin, index, remote
from gpuimg.harvest.packages import PackageSpec

_SDIST_LIMIT = 2 << 20


@dataclass
class WheelFacts:
    """What one file said of itself."""

    file: str
    requires: list[str] = field(default_factory=list)
    requires_python: str | None = None
    extras: list[str] = field(default_factory=list)
    classifiers: list[str] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    sm: list[str] = field(default_factory=list)
    sm_how: str | None = None
    sonames: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Chosen:
    """One file to read, for one package, version and machine."""

    spec: PackageSpec
    version: Version
    machine: str
    file: index.IndexFile


@dataclass
class Traffic:
    """Counted over all threads."""

    requests: int = 0
    received: int = 0
    read: int = 0
    cached: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, requests_made: int, received: int) -> None:
        with self._lock:
            self.requests += requests_made
            self.received += received
            self.read += 1

    def hit(self) -> None:
        with self._lock:
            self.cached += 1


def on_machine(file: index.IndexFile, machine: str) -> bool:
    """True for a Linux wheel of that machine, or one for any platform."""
    return any(t.platform == "any" or ("linux" in t.platform and t.platform.endswith(machine)) for t in file.tags)


def releases(spec: PackageSpec, files: Iterable[index.IndexFile]) -> dict[Version, list[index.IndexFile]]:
    """Files by version, from ``spec.since`` on, without pre-releases."""
    found: dict[Version, list[index.IndexFile]] = {}
    for file in files:
        if file.version < Version(spec.since):
            continue
        if file.version.is_prerelease and str(file.version) not in spec.prereleases:
            continue
        found.setdefault(file.version, []).append(file)
    return dict(sorted(found.items()))


def choose(spec: PackageSpec, files: Iterable[index.IndexFile]) -> list[Chosen]:
    """One file to read per version and machine: the cp311 wheel where there is one, else the last by name."""
    chosen: list[Chosen] = []
    if spec.depth == "index":
        return chosen
    for version, group in releases(spec, files).items():
        if all(f.yanked for f in group):
            continue
        if spec.depth == "sdist":
            archives = [f for f in group if not f.wheel and (f.size or 0) < _SDIST_LIMIT]
            if archives:
                chosen.append(Chosen(spec, version, "x86_64", archives[0]))
            continue
        for machine in spec.machines:
            wheels = sorted((f for f in group if f.wheel and on_machine(f, machine)), key=lambda f: f.name)
            if machine != "x86_64" and wheels and all(t.platform == "any" for t in wheels[-1].tags):
                continue
            wheels = [f for f in wheels if not f.yanked] or wheels
            if wheels:
                best = [f for f in wheels if "-cp311-cp311-" in f.name] or wheels
                chosen.append(Chosen(spec, version, machine, best[-1]))
    return chosen


def _take_metadata(facts: WheelFacts, raw: bytes) -> None:
    message = email.parser.BytesParser().parsebytes(raw)
    facts.requires = [str(v) for v in message.get_all("Requires-Dist") or []]
    facts.requires_python = message["Requires-Python"]
    facts.extras = [str(v) for v in message.get_all("Provides-Extra") or []]
    facts.classifiers = [
        str(v) for v in message.get_all("Classifier") or [] if "CUDA" in str(v) or "Python :: 3." in str(v)
    ]


def _scan_code(wheel: remote.RemoteWheel, spec: PackageSpec, facts: WheelFacts) -> None:
    infos = {i.filename: i for i in wheel.members()}
    if spec.arch_string:
        for name, info in infos.items():
            if re.search(spec.arch_string, name):
                facts.sm = fatbin.arch_list_string(b"".join(wheel.stream(info)))
                facts.sm_how = f"arch list string in {name}" if facts.sm else None
    for pattern in spec.fatbin:
        if facts.sm:
            return
        for name, info in infos.items():
            if re.search(pattern, name) and not facts.sm:
                entries: Counter[str] = Counter()
                containers = 0
                pending = bytearray()
                whole = True
                for piece in wheel.stream(info, limit=spec.fatbin_limit):
                    facts.sonames = sorted({*facts.sonames, *fatbin.sonames(piece)})
                    pending += piece
                    found, count, position = fatbin.scan(pending)
                    entries += found
                    containers += count
                    del pending[:position]
                    if containers >= spec.containers:
                        whole = False
                        break
                facts.sm = fatbin.common_targets(entries)
                extent = "all" if whole and info.compress_size <= spec.fatbin_limit else f"the first {containers}"
                facts.sm_how = f"code headers of {extent} containers in {name}" if facts.sm else None


def read_wheel(http: requests.Session, chosen: Chosen, traffic: Traffic) -> WheelFacts:
    """Facts of one wheel or source archive, over the network.

    Raises OSError or requests.RequestException when it cannot be read.
    """
    spec, file = chosen.spec, chosen.file
    facts = WheelFacts(file.name)
    if spec.depth == "sdist":
        answer = http.get(file.url, timeout=120)
        answer.raise_for_status()
        traffic.add(1, len(answer.content))
        with tarfile.open(fileobj=io.BytesIO(answer.content)) as archive:
            names = sorted((n for n in archive.getnames() if n.endswith("PKG-INFO")), key=len)
            member = archive.extractfile(names[0]) if names else None
            if member is not None:
                _take_metadata(facts, member.read())
        return facts
    if spec.depth == "metadata" and file.has_metadata:
        answer = http.get(file.url + ".metadata", timeout=60)
        traffic.add(1, len(answer.content))
        if answer.ok:
            _take_metadata(facts, answer.content)
            return facts
    wheel = remote.RemoteWheel(http, file.url, file.size)
    try:
        for info in wheel.members():
            name = info.filename
            if name.endswith(".dist-info/METADATA") and name.count("/") == 1:
                _take_metadata(facts, wheel.text(info).encode())
            elif any(re.search(p, name) for p in spec.texts) and info.file_size < 1 << 20:
                facts.texts[name] = wheel.text(info)
            if spec.names and re.search(spec.names, name):
                facts.names.append(name)
        if spec.arch_string or spec.fatbin:
            _scan_code(wheel, spec, facts)
    finally:
        traffic.add(wheel.file.requests, wheel.file.received)
    return facts


class Cache:
    """One JSON file per wheel, by the wheel's name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def get(self, name: str) -> WheelFacts | None:
        path = self.folder / f"{name}.json"
        try:
            return WheelFacts(**json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None

    def put(self, facts: WheelFacts) -> None:
        path = self.folder / f"{facts.file}.json"
        temporary = path.with_suffix(f".{threading.get_ident()}.tmp")
        temporary.write_text(json.dumps(asdict(facts)), encoding="utf-8")
        temporary.replace(path)


@dataclass
class Collected:
    """Everything read: listings, facts by file name, and what could not be read."""

    listings: dict[str, list[index.IndexFile]]
    chosen: list[Chosen]
    facts: dict[str, WheelFacts]
    failures: dict[str, str]
    traffic: Traffic


def collect(
    specs: Iterable[PackageSpec],
    cache: Cache,
    *,
    index_url: str,
    offline: bool = False,
    threads: int = 4,
    say: Callable[[str], None] = lambda _: None,
) -> Collected:
    """Read listings and wheels; ``offline`` uses the cache only. What cannot be read is reported, not guessed."""
    specs = list(specs)
    http = index.session()
    traffic = Traffic()

    def listing(spec: PackageSpec) -> list[index.IndexFile]:
        path = cache.folder / f"_listing-{spec.name}.json"
        if offline:
            stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
            return index.parse_listing(spec.name, stored)
        files, raw = index.list_files(http, index_url, spec.name)
        path.write_text(json.dumps(raw), encoding="utf-8")
        return files

    with ThreadPoolExecutor(threads) as pool:
        listings = dict(zip((s.name for s in specs), pool.map(listing, specs), strict=True))
        say(f"{len(listings)} listings")
        chosen = [c for spec in specs for c in choose(spec, listings[spec.name])]
        facts: dict[str, WheelFacts] = {}
        failures: dict[str, str] = {}

        def read(item: Chosen) -> None:
            known = cache.get(item.file.name)
            if known is not None:
                traffic.hit()
                facts[item.file.name] = known
                return
            if offline:
                failures[item.file.name] = "not in the cache"
                return
            try:
                got = read_wheel(http, item, traffic)
            except Exception as error:  # one unreadable wheel must not end the run; it is listed
                failures[item.file.name] = f"{type(error).__name__}: {error}"
                say(f"cannot read {item.file.name}: {failures[item.file.name]}")
                return
            cache.put(got)
            facts[item.file.name] = got
            if traffic.read % 100 == 0:
                say(f"{len(facts)}/{len(chosen)} files, {traffic.received >> 20} MiB")

        list(pool.map(read, chosen))
    return Collected(listings, chosen, facts, failures, traffic)
