"""The knowledge base: reads ``data/`` once, lazily, and hands out typed rows. No rule lives here.

``load()`` costs a few milliseconds; each section is parsed when first asked for.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, TypeVar

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from gpuimg.errors import EnvironmentFault
from gpuimg.knowledge.tables import (
    Architecture,
    BaseTag,
    Build,
    Conflict,
    CudnnSupport,
    EngineLimit,
    ForwardCompat,
    GpuModel,
    KnownImage,
    OsRelease,
    Removed,
    Toolkit,
)

T = TypeVar("T")

_OPENING = '": [\n'

DATA = Path(__file__).parent / "data"


@lru_cache(maxsize=8192)
def version_key(text: str) -> Version:
    """Sort key for versions as PEP 440; a string that is not a version sorts first."""
    try:
        return Version(text)
    except InvalidVersion:
        return Version("0.dev0")


def _damaged(path: Path, error: Exception) -> EnvironmentFault:
    return EnvironmentFault(
        f"{path}: the knowledge base cannot be read: {error}", hint="reinstall gpuimg, or unset GPUIMG_DATA"
    )


def _driver_key(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdigit())


def _tuples(row: dict[str, Any]) -> dict[str, Any]:
    return {k: tuple(v) if isinstance(v, list) else v for k, v in row.items()}


class BuildsFile:
    """A file of build rows, one package a section; a section is parsed when asked for (most answers need three).

    The writer puts ``"name": [`` and ``]`` on lines of their own; a file laid out otherwise is parsed whole.
    """

    def __init__(self, path: Path) -> None:
        text = path.read_text(encoding="utf-8")
        start = text.find('"builds": {\n')
        places: dict[str, tuple[int, int]] = {}
        at = text.find(_OPENING, start) if start >= 0 else -1
        while at >= 0:
            begin = at + len(_OPENING) - 2
            end = text.find("\n]", begin) + 2
            places[text[text.rfind('"', 0, at) + 1 : at]] = (begin, end)
            at = text.find(_OPENING, end)
        self._text = text
        self._whole: dict[str, list[dict[str, Any]]] | None = None
        if places:
            self.head: dict[str, Any] = json.loads(text[:start].rstrip().rstrip(",") + "}")
            self._places = places
        else:
            self.head = json.loads(text)
            self._whole = self.head.pop("builds")
            self._places = dict.fromkeys(self._whole, (0, 0))

    def names(self) -> set[str]:
        """Packages with rows."""
        return set(self._places)

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Rows of one package as stored; none for an unknown name."""
        if name not in self._places:
            return []
        if self._whole is not None:
            return self._whole[name]
        start, end = self._places[name]
        found: list[dict[str, Any]] = json.loads(self._text[start:end])
        return found


class Knowledge:
    """Everything the package knows, as rows of ``tables``. Every row has a source. Instances are read-only."""

    def __init__(self, folder: Path | None = None) -> None:
        """``folder`` overrides single data files; what it lacks comes from the package."""
        self._folder = folder
        self._expanded: dict[str, tuple[Build, ...]] = {}
        self._by_version: dict[str, dict[str, tuple[Build, ...]]] = {}

    # --- files --------------------------------------------------------------------------------------------------

    def path_of(self, name: str) -> Path:
        """The file a section is read from."""
        if self._folder is not None and (self._folder / name).is_file():
            return self._folder / name
        return DATA / name

    def _read(self, name: str) -> Any:
        path = self.path_of(name)
        try:
            with open(path, "rb") as handle:
                return json.load(handle)
        except (OSError, ValueError) as error:
            raise _damaged(path, error) from error

    def _builds_file(self, name: str) -> BuildsFile:
        path = self.path_of(name)
        try:
            return BuildsFile(path)
        except (OSError, ValueError, KeyError, AttributeError) as error:
            raise _damaged(path, error) from error

    @cached_property
    def _pypi(self) -> BuildsFile:
        return self._builds_file("pypi.json")

    @cached_property
    def _hand(self) -> BuildsFile:
        return self._builds_file("builds.json")

    @cached_property
    def _hardware(self) -> dict[str, Any]:
        found: dict[str, Any] = self._read("hardware.json")
        return found

    @cached_property
    def _images(self) -> dict[str, Any]:
        found: dict[str, Any] = self._read("images.json")
        return found

    @cached_property
    def _notes(self) -> dict[str, Any]:
        found: dict[str, Any] = self._read("notes.json")
        return found

    # --- frameworks ---------------------------------------------------------------------------------------------

    @property
    def date(self) -> str:
        """ISO date on which the published wheels were read."""
        return str(self._pypi.head["date"])

    def frameworks(self) -> tuple[str, ...]:
        """Names with rows, companions left out, sorted."""
        names = self._pypi.names() | self._hand.names()
        return tuple(sorted(names - set(self._hand.head["companions"])))

    def companion_names(self) -> tuple[str, ...]:
        """Packages that only matter beside a framework: torchvision, triton, xformers, nvidia-cudnn-cu12 …"""
        names = self._pypi.names() | self._hand.names()
        return tuple(sorted(names & set(self._hand.head["companions"])))

    @cached_property
    def aliases(self) -> Mapping[str, str]:
        """Other names → PyPI name: pytorch → torch, paddle → paddlepaddle-gpu."""
        return dict(self._hand.head["aliases"])

    @cached_property
    def _keys(self) -> Mapping[str, str]:
        return dict(self._notes["sources"])

    def _rows(self, kind: Callable[..., T], rows: list[dict[str, Any]]) -> tuple[T, ...]:
        """Typed rows, source keys replaced by what they stand for."""
        return tuple(kind(**{**_tuples(row), "source": self._spell_out(row["source"])}) for row in rows)

    def _spell_out(self, source: str) -> str:
        """'ccpage + dcgm' → what the keys stand for; a URL stays as it is."""
        return "; ".join(self._keys.get(part, part) for part in source.split(" + "))

    def _build(self, framework: str, row: dict[str, Any]) -> Build:
        row = {"wheel_cuda": None, "device": None, **_tuples(row)}
        row["source"] = self._spell_out(str(row.get("source", "")))
        url = row.get("index_url")
        if isinstance(url, str) and url.startswith("@"):
            row["index_url"] = self._hand.head["index_urls"][url[1:]]
        return Build(framework=framework, **row)

    @staticmethod
    def _patch(rows: dict[tuple[str, ...], dict[str, Any]], patch: dict[str, Any]) -> None:
        """``{versions: specifier or [exact …], where: {field: value(s)}, set: {…}, add: {field: [values]}}``."""
        versions = patch["versions"]
        exact = frozenset(versions) if isinstance(versions, list) else None
        specifier = SpecifierSet("" if exact is not None else versions, prereleases=True)
        where = {k: v if isinstance(v, list) else [v] for k, v in patch.get("where", {}).items()}
        for key, row in rows.items():
            if any(row.get(k) not in v for k, v in where.items()):
                continue
            if exact is not None:
                if row["version"] not in exact:
                    continue
            elif not specifier.contains(version_key(row["version"])):
                continue
            changed = {**row, **patch.get("set", {})}
            for name, values in patch.get("add", {}).items():
                changed[name] = [*changed.get(name, ()), *(v for v in values if v not in changed.get(name, ()))]
            rows[key] = changed

    def _expand(self, framework: str) -> tuple[Build, ...]:
        found = self._expanded.get(framework)
        if found is not None:
            return found
        rows: dict[tuple[str, ...], dict[str, Any]] = {}
        for origin in (self._hand, self._pypi):
            for row in origin.rows(framework):
                key: tuple[str, ...] = (row["version"], row["machine"], row["index"], row.get("extra") or "")
                if row["index"] != "pypi":
                    key = (*key, row.get("local") or "", row.get("index_url") or "", row.get("wheel_cuda") or "")
                rows[key] = {**rows[key], **row} if key in rows else row
        for patch in self._hand.head["patches"].get(framework, ()):
            self._patch(rows, patch)
        built = [self._build(framework, row) for row in self._with_base_pins(list(rows.values()))]
        built.sort(key=lambda b: (version_key(b.version), not b.default, b.machine != "x86_64", b.index, b.local or ""))
        self._expanded[framework] = tuple(built)
        return self._expanded[framework]

    @staticmethod
    def _with_base_pins(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """An extra installs the package itself too: what the package pins without it holds with it."""
        own = {
            (row["version"], row["machine"], row["index"]): row.get("requires") or ()
            for row in rows
            if not row.get("extra")
        }
        out = []
        for row in rows:
            more = own.get((row["version"], row["machine"], row["index"]), ()) if row.get("extra") else ()
            have = list(row.get("requires") or ())
            names = {re.split(r"[^A-Za-z0-9._-]", text, maxsplit=1)[0].lower() for text in have}
            extra = [t for t in more if re.split(r"[^A-Za-z0-9._-]", t, maxsplit=1)[0].lower() not in names]
            out.append({**row, "requires": [*have, *extra]} if extra else row)
        return out

    def builds(self, framework: str, version: str | None = None, *, machine: str | None = None) -> tuple[Build, ...]:
        """Rows of a framework or companion, oldest version first; the default of pip comes first within a version.

        A name without rows gives an empty tuple. ``version`` is matched as PEP 440 (2.5 finds 2.5.0).
        """
        name = self.aliases.get(framework, framework)
        if version is None:
            rows = self._expand(name)
        else:
            groups = self._by_version.get(name)
            if groups is None:
                collected: dict[str, list[Build]] = {}
                for build in self._expand(name):
                    collected.setdefault(str(version_key(build.version)), []).append(build)
                groups = self._by_version[name] = {k: tuple(v) for k, v in collected.items()}
            wanted = version_key(version)
            rows = groups.get(str(wanted), ())
            if not rows:
                rows = next((v for k, v in groups.items() if Version(k) == wanted), ())
        if machine is None:
            return rows
        return tuple(b for b in rows if b.machine == machine)

    def versions(self, framework: str) -> tuple[str, ...]:
        """Public versions with at least one row, oldest first."""
        return tuple(dict.fromkeys(b.version for b in self.builds(framework)))

    def companions(self, name: str) -> tuple[Build, ...]:
        """Rows of a companion package; ``requires`` holds its pins."""
        return self.builds(name)

    # --- hardware -----------------------------------------------------------------------------------------------

    @cached_property
    def gpus(self) -> tuple[GpuModel, ...]:
        """NVIDIA cards by the name nvidia-smi prints."""
        return self._rows(GpuModel, self._hardware["gpus"])

    @cached_property
    def foreign_gpus(self) -> Mapping[str, str]:
        """Lower-case name part of accelerators that are not NVIDIA's → what they are and what they need."""
        return dict(self._hardware["foreign_gpus"])

    @cached_property
    def toolkits(self) -> tuple[Toolkit, ...]:
        """CUDA toolkits, oldest first."""
        rows = self._rows(Toolkit, self._hardware["toolkits"])
        return tuple(sorted(rows, key=lambda t: version_key(t.version)))

    def toolkit(self, version: str) -> Toolkit | None:
        """An exact toolkit ('12.4.1'), or the newest patch of a minor ('12.4')."""
        exact = [t for t in self.toolkits if t.version == version]
        if exact:
            return exact[-1]
        patches = [t for t in self.toolkits if t.version.startswith(version + ".")]
        return patches[-1] if patches else None

    @cached_property
    def _first_drivers(self) -> Mapping[str, str]:
        first: dict[str, str] = {}
        for toolkit in self.toolkits:
            if toolkit.driver_linux is not None:
                first.setdefault(".".join(toolkit.version.split(".")[:2]), toolkit.driver_linux)
        return first

    def first_driver(self, cuda_minor: str) -> str | None:
        """The Linux driver that came with the first release of a CUDA minor: '12.4' → '550.54.14'.

        A driver at least this new is native for that CUDA, PTX included. None when not known.
        """
        return self._first_drivers.get(".".join(cuda_minor.split(".")[:2]))

    def driver_cuda(self, driver: str) -> str | None:
        """Newest CUDA minor a Linux driver knows: '535.104.05' → '12.2'. None when older than the table."""
        have = _driver_key(driver)
        known = [minor for minor, first in self._first_drivers.items() if _driver_key(first) <= have]
        return max(known, key=version_key) if known else None

    @cached_property
    def minor_compat(self) -> Mapping[int, str]:
        """CUDA major → oldest Linux driver that runs every minor of it (SASS only, no PTX)."""
        return {int(k): v for k, v in self._hardware["minor_compat"].items()}

    @cached_property
    def minor_compat_windows(self) -> Mapping[int, str]:
        """As ``minor_compat``, for Windows drivers."""
        return {int(k): v for k, v in self._hardware["minor_compat_windows"].items()}

    @cached_property
    def forward_compat(self) -> tuple[ForwardCompat, ...]:
        """cuda-compat packages × driver branches."""
        return self._rows(ForwardCompat, self._hardware["forward_compat"])

    @cached_property
    def architectures(self) -> tuple[Architecture, ...]:
        """Compute capabilities with their floors and ceilings."""
        return self._rows(Architecture, self._hardware["architectures"])

    @cached_property
    def cudnn(self) -> tuple[CudnnSupport, ...]:
        """cuDNN support rows; the first whose ``cudnn`` specifier holds is the one."""
        return self._rows(CudnnSupport, self._hardware["cudnn"])

    @cached_property
    def limits(self) -> tuple[EngineLimit, ...]:
        """What engines need of a card: vLLM ≥ 7.0, FlashAttention 2 ≥ 8.0 …"""
        return self._rows(EngineLimit, self._hardware["limits"])

    # --- images and systems -------------------------------------------------------------------------------------

    @cached_property
    def base_tags(self) -> tuple[BaseTag, ...]:
        """Tags of nvidia/cuda."""
        requires: Mapping[str, str] = self._images["requires"]
        rows = [{**row, "require": requires.get(row["require"], row["require"])} for row in self._images["base_tags"]]
        return self._rows(BaseTag, rows)

    def base_tag(self, tag: str) -> BaseTag | None:
        """One tag of nvidia/cuda without building the rows of all two thousand; None when it is not known."""
        requires: Mapping[str, str] = self._images["requires"]
        for row in self._images["base_tags"]:
            if row["tag"] == tag:
                return self._rows(BaseTag, [{**row, "require": requires.get(row["require"], row["require"])}])[0]
        return None

    @cached_property
    def images(self) -> tuple[KnownImage, ...]:
        """Public images with frameworks in them."""
        return self._rows(KnownImage, self._images["images"])

    @cached_property
    def oses(self) -> Mapping[str, OsRelease]:
        """'ubuntu22.04' → facts."""
        return {release.id: release for release in self._rows(OsRelease, self._images["oses"])}

    def os(self, name: str) -> OsRelease | None:
        """An OS by id or alias: 'ubuntu22.04', 'jammy', 'ubi8', 'centos:7'."""
        wanted = name.strip().lower().replace(":", "").replace("-", "").replace(" ", "")
        for release in self.oses.values():
            if wanted == release.id or wanted in release.aliases:
                return release
        return None

    def glibc_of_os(self, os_name: str) -> str | None:
        """glibc of a release: 'ubuntu22.04' → '2.35'. None when not known."""
        found = self.os(os_name)
        return found.glibc if found else None

    def python_of_os(self, os_name: str) -> str | None:
        """python3 of a release: 'ubuntu22.04' → '3.10'. None when not known or none."""
        found = self.os(os_name)
        return found.python if found else None

    @cached_property
    def os_eol(self) -> Mapping[str, str]:
        """OS id → ISO date on which free public updates end."""
        return {o.id: o.end_of_life for o in self.oses.values() if o.end_of_life}

    # --- notes --------------------------------------------------------------------------------------------------

    @cached_property
    def removed(self) -> tuple[Removed, ...]:
        """Names and versions pip cannot give a working GPU install of."""
        return self._rows(Removed, self._notes["removed"])

    @cached_property
    def conflicts(self) -> tuple[Conflict, ...]:
        """Where sources disagree, and who is right."""
        return self._rows(Conflict, self._notes["conflicts"])

    @property
    def sources(self) -> Mapping[str, str]:
        """Short key → where the facts come from."""
        return self._keys


def user_folder() -> Path:
    """Where ``gpuimg kb update`` writes without ``--out``."""
    if sys.platform == "linux":  # what platformdirs says there, without the cost of its import in every answer
        return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "gpuimg" / "knowledge"
    import platformdirs

    return Path(platformdirs.user_data_dir("gpuimg")) / "knowledge"


def date_of(path: Path) -> str | None:
    """The date in the first line of a ``pypi.json``, without reading the rest; None when there is none."""
    try:
        with open(path, encoding="utf-8") as handle:
            found = re.match(r'\{"date": "(\d{4}-\d\d-\d\d)"', handle.readline(64))
    except (OSError, UnicodeDecodeError):
        return None
    return found[1] if found else None


@lru_cache(maxsize=1)
def load() -> Knowledge:
    """The knowledge base, shared and read-only: the shipped files, or newer ones.

    ``GPUIMG_DATA`` names a folder whose files replace the shipped ones; without it, a ``pypi.json`` written by
    ``gpuimg kb update`` is used when it is newer than the shipped one. Raises EnvironmentFault when a data file is
    missing or damaged.
    """
    folder = os.environ.get("GPUIMG_DATA")
    if folder:
        return Knowledge(Path(folder))
    own = user_folder()
    updated = date_of(own / "pypi.json")
    if updated is not None and updated > (date_of(DATA / "pypi.json") or ""):
        return Knowledge(own)
    return Knowledge()
