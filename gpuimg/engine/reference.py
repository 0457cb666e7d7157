"""Names of images: ``[registry/]repository[:tag][@digest]``, normalised the way Docker does it. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from gpuimg.errors import BadInput

DOCKER_HUB = "docker.io"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_PATH = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*")
_HOST = re.compile(r"(?:\[[0-9a-fA-F:]+\]|[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?)(?::[0-9]{1,5})?")


@dataclass(frozen=True)
class Reference:
    """One image name. With neither tag nor digest, ``latest`` is meant, as Docker means it."""

    registry: str
    """Host with optional port: 'docker.io', '127.0.0.1:5000'."""
    repository: str
    """Path below it: 'library/debian'."""
    tag: str | None = None
    digest: str | None = None

    def __str__(self) -> str:
        text = self.name
        if self.tag is not None:
            text += f":{self.tag}"
        if self.digest is not None:
            text += f"@{self.digest}"
        return text

    @property
    def name(self) -> str:
        """Registry and repository, without tag and digest."""
        return f"{self.registry}/{self.repository}"

    @property
    def selector(self) -> str:
        """What the registry is asked for: the digest when there is one, else the tag, else 'latest'."""
        return self.digest or self.tag or "latest"

    def with_tag(self, tag: str) -> Reference:
        return replace(self, tag=tag, digest=None)

    def with_digest(self, digest: str) -> Reference:
        return replace(self, tag=None, digest=digest)


def is_digest(text: str) -> bool:
    return _DIGEST.fullmatch(text) is not None


def parse_reference(text: str) -> Reference:
    """Read an image name.

    The first part is a registry when it holds a dot or colon or is ``localhost``
    (https://github.com/distribution/reference); otherwise Docker Hub, with ``library/`` for bare names.

    Raises:
        BadInput: the name is malformed; the message says which part.
    """
    rest, digest, tag = text.strip(), None, None
    if "@" in rest:
        rest, digest = rest.split("@", 1)
        if not is_digest(digest):
            raise BadInput(f"{text!r}: the digest must be sha256: and 64 hex digits, found {digest!r}")
    if ":" in rest.rsplit("/", 1)[-1]:
        rest, tag = rest.rsplit(":", 1)
        if not _TAG.fullmatch(tag):
            raise BadInput(f"{text!r}: {tag!r} is not a tag (letters, digits, '_', '.', '-'; 128 at most)")
    first, slash, path = rest.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        registry, repository = first, path
    else:
        registry, repository = DOCKER_HUB, rest if slash else f"library/{rest}"
    if registry in {"index.docker.io", "registry-1.docker.io"}:
        registry = DOCKER_HUB
    if not _HOST.fullmatch(registry):
        raise BadInput(f"{text!r}: {registry!r} is not a registry host")
    if not _PATH.fullmatch(repository):
        raise BadInput(f"{text!r}: {repository!r} is not a repository path (lower case, digits, '.', '_', '-', '/')")
    return Reference(registry, repository, tag, digest)
