"""What every parser of this room hands out: requirements with their places, options of pip, and problems met."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal
from urllib.parse import unquote

from packaging.requirements import InvalidRequirement
from packaging.requirements import Requirement as Pep508
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from gpuimg.nouns import Requirement

IndexKind = Literal["index-url", "extra-index-url", "find-links", "source"]


@dataclass(frozen=True)
class Index:
    """Where packages come from: an index or a page of links, and the only packages it serves when that is limited."""

    url: str
    kind: IndexKind
    file: str
    line: int | None
    packages: tuple[str, ...] = ()
    """Non-empty: only these (uv's and Poetry's pinned sources)."""


@dataclass(frozen=True)
class Problem:
    """A line that could not be understood as the format's own tools would."""

    file: str
    line: int | None
    text: str
    reason: str


@dataclass(frozen=True)
class FileNeeds:
    """What one file asks for. ``kind`` is the name of its format ('requirements', 'conda', 'pyproject' …)."""

    kind: str
    file: str
    requirements: tuple[Requirement, ...] = ()
    constraints: tuple[Requirement, ...] = ()
    """Versions that only bind packages something else asks for (-c)."""
    conda: tuple[Requirement, ...] = ()
    channels: tuple[tuple[str, int | None], ...] = ()
    """conda channels in order, with their lines."""
    python: str | None = None
    python_line: int | None = None
    indexes: tuple[Index, ...] = ()
    options: tuple[tuple[str, str, int | None], ...] = ()
    """Other options: ('--pre', '', line)."""
    problems: tuple[Problem, ...] = ()
    files: tuple[str, ...] = ()
    name: str | None = None
    locked: bool = False
    """True for lock files: every version is exact and was solved together."""
    groups: tuple[tuple[str, tuple[Requirement, ...]], ...] = ()
    """Extras and dependency groups: each may be installed with the rest, not with each other. Also in requirements."""


def wheel_name(text: str) -> str | None:
    """The wheel file name in a path or URL, percent signs decoded; None when it is not a wheel."""
    last = unquote(text.split("#")[0].split("?")[0]).rstrip("/").replace("\\", "/").rsplit("/", 1)[-1]
    return last if last.endswith(".whl") else None


def pip_requirement(text: str, *, file: str | None, line: int | None) -> Requirement | None:
    """One PEP 508 line, wheel path or URL as pip reads it; names are kept, aliases are not resolved.

    ``pytorch`` stays ``pytorch`` here: for pip it is another package than torch. None when pip would refuse it.
    """
    text = text.strip()
    head, at, target = text.partition(" @ ")
    if not at and re.match(r"^[A-Za-z0-9][\w.-]*(\[[^\]]*\])?@(https?|file|git)", text):
        head, at, target = text.partition("@")
    link = target if at else text
    marker: str | None = None
    if at or "://" in text or text.endswith(".whl"):
        link, semicolon, rest = link.partition(" ; ")
        if not semicolon:
            link, semicolon, rest = link.partition("; ")
        marker = rest.strip() or None
    link = link.strip()
    wheel = wheel_name(link)
    if wheel is not None and (at or "://" in link or link.endswith(".whl")):
        try:
            name, version, _, _ = parse_wheel_filename(wheel)
        except InvalidWheelFilename:
            return None
        extras = _extras_of(head) if at else ()
        return Requirement(
            name=canonicalize_name(name), specifier=f"=={version.public}", local=version.local, extras=extras,
            marker=marker, url=link, raw=text, file=file, line=line, from_file=file is not None,
        )  # fmt: skip
    if at:
        named = re.split(r"[\[\s]", head.strip())[0]
        if not re.fullmatch(r"[A-Za-z0-9]([\w.-]*[A-Za-z0-9])?", named):
            return None
        return Requirement(
            name=canonicalize_name(named), extras=_extras_of(head), marker=marker, url=link, raw=text, file=file,
            line=line, from_file=file is not None,
        )  # fmt: skip
    if "://" in text or text.startswith(("git+", "hg+", "./", "../", "/", "file:")):
        egg = re.search(r"#(?:.*&)?egg=([A-Za-z0-9][\w.-]*)", text)
        repository = egg[1] if egg else _repository_name(text)
        if not repository:
            return None
        return Requirement(
            name=canonicalize_name(repository), url=link or text, marker=marker, raw=text, file=file, line=line,
            from_file=file is not None,
        )  # fmt: skip
    try:
        found = Pep508(text)
    except InvalidRequirement:
        return None
    specifier, local = split_local(str(found.specifier))
    return Requirement(
        name=canonicalize_name(found.name), specifier=specifier, local=local,
        extras=tuple(sorted(canonicalize_name(e) for e in found.extras)),
        marker=str(found.marker) if found.marker else None, url=found.url, raw=text, file=file, line=line,
        from_file=file is not None,
    )  # fmt: skip


def _extras_of(head: str) -> tuple[str, ...]:
    found = re.search(r"\[([^\]]*)\]", head)
    if not found:
        return ()
    return tuple(sorted(canonicalize_name(e.strip()) for e in found[1].split(",") if e.strip()))


def _repository_name(text: str) -> str | None:
    path = re.split(r"[#?]", text)[0].rstrip("/")
    if "@" in path.rsplit("/", 1)[-1]:
        path = path.rsplit("@", 1)[0]
    last = path.replace("\\", "/").rsplit("/", 1)[-1]
    last = re.sub(r"\.(git|zip|tar\.gz|tgz|tar\.bz2)$", "", last)
    last = re.sub(r"-\d[\w.]*$", "", last)
    return last if re.fullmatch(r"[A-Za-z0-9]([\w.-]*[A-Za-z0-9])?", last) else None


def split_local(specifier: str) -> tuple[str, str | None]:
    """``==2.5.1+cu124`` → ('==2.5.1', 'cu124'); clauses sorted, ``===`` as ``==``."""
    local: str | None = None
    clauses = []
    for clause in specifier.split(","):
        head, plus, tail = clause.strip().replace("===", "==").partition("+")
        if plus:
            local = tail.strip().lower().rstrip("*").rstrip(".") or local
        if head:
            clauses.append(head.replace(" ", ""))
    return ",".join(sorted(clauses)), local


def exact_version(requirement: Requirement) -> str | None:
    """The one public version a requirement allows: '2.5.1' for ``==2.5.1``; None for ranges and wildcards."""
    for clause in requirement.specifier.split(","):
        if clause.startswith("==") and not clause.endswith("*"):
            return clause[2:]
    return None


_CONDA = re.compile(r"^(?:(?P<channel>[\w./-]+)(?:/[\w-]+)?::)?(?P<name>[A-Za-z0-9_][\w.-]*)\s*(?P<rest>.*)$")


def conda_requirement(text: str, *, file: str | None, line: int | None) -> Requirement | None:
    """A conda match spec → Requirement under its conda name: ``pytorch=2.0`` is ``==2.0.*``, ``=2.0=*cuda11.8*`` cu118.

    None when it is no match spec.
    """
    cleaned = text.strip().strip("'\"")
    cleaned = re.sub(r"\[[^\]]*\]$", "", cleaned).strip()
    found = _CONDA.match(cleaned)
    if not found:
        return None
    name, rest = found["name"].lower(), found["rest"].strip()
    build = ""
    local: str | None = None
    specifier = ""
    if rest:
        plain = re.match(r"^=?=?\s*([\w.*+!-]+)(?:\s*=\s*|\s+)([\w.*+-]+)$", rest)
        if plain and not rest.startswith((">", "<", "!", "~")):
            version, build = plain[1], plain[2]
            specifier = _conda_version(version, fuzzy=False)
        elif rest.startswith("==") and "," not in rest:
            specifier = _conda_version(rest[2:].strip(), fuzzy=False)
        elif rest.startswith("=") and "," not in rest:
            specifier = _conda_version(rest[1:].strip(), fuzzy=True)
        else:
            clauses = []
            for clause in re.split(r"[,|]", rest):
                clause = clause.replace(" ", "")
                if not clause:
                    continue
                if clause[0].isdigit():
                    clauses.append(_conda_version(clause, fuzzy=False))
                elif re.match(r"^=[^=]", clause):
                    clauses.append(_conda_version(clause[1:], fuzzy=True))
                elif re.match(r"^(>=|<=|==|!=|~=|>|<)[\w.*+]+$", clause):
                    clauses.append(re.sub(r"^(>=|<=|>|<)(.*)\.\*$", r"\1\2", clause))
                else:
                    return None
            specifier = ",".join(sorted(c for c in clauses if c)) if "|" not in rest else ""
    cuda = re.search(r"(?:cuda|cu)_?(\d+)\.?(\d)?", build)
    if cuda and build:
        digits = cuda[1] + (cuda[2] or "")
        local = f"cu{digits}"
    elif "cpu" in build:
        local = "cpu"
    return Requirement(
        name=name, specifier=specifier, local=local, raw=text.strip(), file=file, line=line, from_file=file is not None
    )


def _conda_version(version: str, *, fuzzy: bool) -> str:
    version = version.strip()
    wildcard = version.endswith("*")
    version = version.rstrip("*").rstrip(".")
    if not version:
        return ""
    try:
        parsed = Version(version)
    except InvalidVersion:
        return ""
    return f"=={version}.*" if (wildcard or fuzzy) and not parsed.is_prerelease and not parsed.local else f"=={version}"


def at_line(requirement: Requirement, file: str, line: int | None) -> Requirement:
    """The same requirement, seen elsewhere."""
    return replace(requirement, file=file, line=line, from_file=True)
