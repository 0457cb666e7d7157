"""The package index: where it is, and what files it lists for a project (PEP 503/691, JSON form)."""

from __future__ import annotations

import configparser
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import requests
from packaging.tags import Tag
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version
from requests.adapters import HTTPAdapter
from urllib3.util.retry import Retry

from gpuimg.errors import EnvironmentFault

DEFAULT_INDEX = "https://pypi.org/simple"
_ACCEPT = "application/vnd.pypi.simple.v1+json"


@dataclass(frozen=True)
class IndexFile:
    """One file of a project: a wheel or a source archive."""

    name: str
    url: str
    size: int | None
    version: Version
    tags: frozenset[Tag]
    """Empty for a source archive."""
    yanked: bool
    uploaded: str | None
    requires_python: str | None
    has_metadata: bool
    """The index says that ``URL.metadata`` exists (PEP 658)."""

    @property
    def wheel(self) -> bool:
        return bool(self.tags)


def configured_index(environ: Mapping[str, str] | None = None, files: Iterable[Path] | None = None) -> str:
    """Index URL as uv and pip would take it: their environment variables, pip's configuration files, else pypi.org."""
    env = os.environ if environ is None else environ
    for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL"):
        if env.get(name):
            return env[name].split("=", 1)[-1].rstrip("/")
    if files is None:
        home = Path.home()
        given = [Path(env["PIP_CONFIG_FILE"])] if env.get("PIP_CONFIG_FILE") else []
        files = [*given, home / ".config/pip/pip.conf", home / ".pip/pip.conf", Path("/etc/pip.conf")]
    for path in files:
        parser = configparser.RawConfigParser()
        try:
            parser.read(path, encoding="utf-8")
        except (OSError, configparser.Error, UnicodeDecodeError):
            continue
        if parser.has_option("global", "index-url"):
            return parser.get("global", "index-url").strip().rstrip("/")
    return DEFAULT_INDEX


def session() -> requests.Session:
    """An HTTP session that waits and tries again when the index asks it to."""
    made = requests.Session()
    made.headers["User-Agent"] = "gpuimg-kb-update (reads wheel metadata by range requests)"
    retry = Retry(total=5, backoff_factor=1.0, status_forcelist=(429, 500, 502, 503, 504), allowed_methods=("GET",))
    made.mount("https://", HTTPAdapter(max_retries=retry, pool_maxsize=8))
    made.mount("http://", HTTPAdapter(max_retries=retry, pool_maxsize=8))
    return made


def parse_listing(project: str, listing: Mapping[str, object]) -> list[IndexFile]:
    """Files of a JSON listing whose names say what they are; the rest (eggs, installers) are left out."""
    found: list[IndexFile] = []
    wanted = canonicalize_name(project)
    entries = listing.get("files")
    for entry in entries if isinstance(entries, list) else ():
        name = str(entry["filename"])
        tags: frozenset[Tag] = frozenset()
        try:
            if name.endswith(".whl"):
                own, version, _, tags = parse_wheel_filename(name)
            else:
                own, version = parse_sdist_filename(name)
        except (InvalidWheelFilename, InvalidSdistFilename, InvalidVersion):
            continue
        if own != wanted:
            continue
        found.append(
            IndexFile(
                name=name,
                url=str(entry["url"]),
                size=entry.get("size"),
                version=version,
                tags=tags,
                yanked=bool(entry.get("yanked")),
                uploaded=(entry.get("upload-time") or "")[:10] or None,
                requires_python=entry.get("requires-python"),
                has_metadata=bool(entry.get("core-metadata") or entry.get("data-dist-info-metadata")),
            )
        )
    return found


def list_files(http: requests.Session, index: str, project: str) -> tuple[list[IndexFile], Mapping[str, object]]:
    """Every file the index lists for ``project``, and the listing itself; an unknown project gives an empty list.

    Raises EnvironmentFault when the index does not answer, or not in JSON.
    """
    url = f"{index}/{canonicalize_name(project)}/"
    try:
        answer = http.get(url, headers={"Accept": _ACCEPT}, timeout=60)
    except requests.RequestException as error:
        raise EnvironmentFault(f"the package index does not answer for {project}: {type(error).__name__}") from error
    if answer.status_code == 404:
        return [], {}
    if not answer.ok:
        raise EnvironmentFault(f"the package index answered {answer.status_code} for {project}")
    if "json" not in answer.headers.get("Content-Type", ""):
        raise EnvironmentFault(
            f"the package index has no JSON listing for {project} (PEP 691)", hint="point PIP_INDEX_URL to one that has"
        )
    listing: Mapping[str, object] = answer.json()
    return parse_listing(project, listing), listing
