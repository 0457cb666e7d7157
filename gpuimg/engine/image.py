"""An image as the engine has it: found or pulled, its digest, its platform, its Pythons, its entrypoint."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gpuimg.engine.container import CannotStart, Container, Limits, NoSuchProgram, run_once
from gpuimg.engine.gpu_access import GpuAccess
from gpuimg.engine.reference import Reference, is_digest, parse_reference
from gpuimg.engine.registry import NotThere, RegistryError, Repository
from gpuimg.errors import CannotTell, EnvironmentFault
from gpuimg.nouns import CheckResult

if TYPE_CHECKING:
    import docker

MODULES = {
    "torch": "torch",
    "tensorflow": "tensorflow",
    "jax": "jax",
    "paddlepaddle": "paddle",
    "mindspore": "mindspore",
    "onnxruntime": "onnxruntime",
    "cupy": "cupy",
    "vllm": "vllm",
    "tensorrt_llm": "tensorrt_llm",
}
"""Framework → module, for choosing the Python that has it."""
OLDEST_PYTHON = (3, 8)
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64", "arm64": "arm64", "amd64": "amd64"}
_ENTRYPOINT_SECONDS = 3.0

# Every Python of an image, each with the frameworks it can find. POSIX sh, no other tool needed.
_FIND = r"""
seen=:
for name in "$GPUIMG_PYTHON" python3 python /opt/venv/bin/python /opt/conda/bin/python /opt/*/.venv/bin/python \
    /opt/*/bin/python3 /usr/local/bin/python3 /usr/bin/python3; do
  [ -n "$name" ] || continue
  case $name in */*) found=$name ;; *) found=$(command -v "$name") ;; esac
  [ -x "$found" ] || continue
  case $seen in *:"$found":*) continue ;; esac
  seen=$seen$found:
  "$found" -E -s -c "$1" "$found" || echo "{\"path\": \"$found\", \"broken\": true}"
done
"""
_DESCRIBE = (
    "import sys,json\n"
    "try:\n from importlib.util import find_spec as f\nexcept ImportError:\n f=lambda m:None\n"
    "has=[m for m in %r if f(m) is not None]\n"
    "print(json.dumps({'path':sys.argv[1],'version':list(sys.version_info[:3]),'modules':has}))"
)


@dataclass(frozen=True)
class Image:
    """An image in the engine. Containers are made from ``id``, so that nothing is pulled and no tag can move."""

    reference: str
    id: str
    digest: str | None
    """Manifest digest in the registry the reference names; None when it is in no registry as far as known."""
    architecture: str
    config: dict[str, Any] = field(default_factory=dict)
    """Config as the engine shows it: Entrypoint, Cmd, Env, Labels, User."""

    @property
    def labels(self) -> dict[str, str]:
        found = self.config.get("Labels")
        return dict(found) if isinstance(found, dict) else {}


@dataclass(frozen=True)
class Python:
    """An interpreter in an image."""

    path: str
    version: tuple[int, ...]
    modules: tuple[str, ...]


def find_image(
    client: docker.DockerClient, reference: str, *, progress: Callable[[str], None] = lambda _: None
) -> Image:
    """The image of a name, id or digest; pulled only when the engine does not have it.

    A tag means what the engine has under it, as everywhere in Docker. Its digest is then only known when the registry
    serves those very bytes.

    Raises:
        EnvironmentFault: neither engine nor registry has it, or pulling failed. CannotTell: another architecture.
    """
    from docker import errors

    try:
        if reference.startswith("sha256:"):
            return _describe(client, client.images.get(reference), reference, None)
        ref = parse_reference(reference)
        try:
            found = client.images.get(_engine_name(str(ref)))
        except errors.ImageNotFound:
            wanted = _digest_there(ref)
            if wanted is None:
                raise EnvironmentFault(
                    f"no image {reference}: neither the engine nor registry {ref.registry} has it",
                    hint="check the name; or build it: gpuimg build",
                ) from None
            progress(f"pulling {ref.with_digest(wanted)}")
            try:
                found = client.images.pull(ref.name, tag=wanted)
            except errors.DockerException as error:
                if "no match" in str(error):  # for the platform: 'no match for platform', 'no matching manifest'
                    raise _other_platform(ref, wanted) from error
                raise
            return _describe(client, found, reference, wanted)
        return _describe(client, found, reference, ref.digest or _digest_of(found, ref))
    except errors.ImageNotFound as error:
        raise EnvironmentFault(f"no image {reference} in the engine") from error
    except errors.DockerException as error:
        raise EnvironmentFault(f"the engine cannot provide {reference}: {error}") from error


def find_pythons(client: docker.DockerClient, image: Image, *, run_id: str) -> list[Python]:
    """Every usable Python of the image, in the order of preference; empty when there is none.

    Raises:
        CannotStart: the image's containers do not start at all.
    """
    describe = _DESCRIBE % (sorted(MODULES.values()),)
    environment = {k: os.environ[k] for k in ("GPUIMG_PYTHON",) if os.environ.get(k)}
    common: dict[str, Any] = {
        "timeout": 60.0, "run_id": run_id, "limits": Limits(), "access": None, "environment": environment,
    }  # fmt: skip
    texts: list[str] = []
    try:
        lines, _ = run_once(client, image.id, entrypoint=["/bin/sh"], command=["-c", _FIND, "sh", describe], **common)
        texts = [line.text for line in lines if line.stream == "stdout"]
    except NoSuchProgram:  # no shell: try the usual names one by one
        for name in filter(None, (environment.get("GPUIMG_PYTHON"), "python3", "python", "/opt/venv/bin/python",
                                  "/opt/conda/bin/python", "/usr/local/bin/python3", "/usr/bin/python3")):  # fmt: skip
            try:
                lines, _ = run_once(
                    client, image.id, entrypoint=[name], command=["-E", "-s", "-c", describe, name], **common
                )
            except NoSuchProgram:
                continue
            texts += [line.text for line in lines if line.stream == "stdout"]
    return read_pythons(texts)


def read_pythons(lines: list[str]) -> list[Python]:
    """The interpreters described by our probe's lines; others (banners) are passed over, too old ones left out."""
    out = []
    for text in lines:
        try:
            found = json.loads(text)
            version = tuple(int(v) for v in found["version"])
            if version >= OLDEST_PYTHON:
                out.append(Python(str(found["path"]), version, tuple(str(m) for m in found["modules"])))
        except (ValueError, KeyError, TypeError):
            continue
    return out


def find_script() -> list[str]:
    """The same search as a command for this machine."""
    return ["/bin/sh", "-c", _FIND, "sh", _DESCRIBE % (sorted(MODULES.values()),)]


def choose_python(pythons: list[Python], framework: str | None) -> Python | None:
    """The first that has the framework asked for; without one, the first that has any; else the first."""
    module = MODULES.get((framework or "").replace("-", "_"))
    for python in pythons:
        if (module in python.modules) if module is not None else bool(python.modules):
            return python
    return pythons[0] if pythons else None


def probe_entrypoint(client: docker.DockerClient, image: Image, *, run_id: str) -> CheckResult:
    """Start the image as its author meant it, once, for a few seconds: does the engine get it off the ground?

    Without network and GPU. A server that keeps running and a program that prints and ends are both fine; what fails
    is an entrypoint that cannot be executed.
    """
    title = "the image's own entrypoint starts"
    declared = [*(image.config.get("Entrypoint") or []), *(image.config.get("Cmd") or [])]
    measured: dict[str, Any] = {"entrypoint": declared}
    if not declared:
        return CheckResult(
            "image.entrypoint", title, "skip", 0.0, measured,
            reason="the image declares neither entrypoint nor command", applicable=False,
        )  # fmt: skip
    said: list[str] = []
    try:
        with Container(
            client, image.id, entrypoint=None, access=GpuAccess("none", (), "entrypoint probe"),
            timeout=_ENTRYPOINT_SECONDS, run_id=run_id, workdir=None,
        ) as container:  # fmt: skip
            for line in container.stream():
                if len(said) < 20:
                    said.append(line.text[:300])
            ended = container.ended()
    except NoSuchProgram as error:
        return CheckResult(
            "image.entrypoint", title, "fail", 0.0, measured, reason=f"cannot be executed: {error.message}",
            hint="the ENTRYPOINT or CMD names a program that is not in the image or is not executable",
        )  # fmt: skip
    except CannotStart as error:
        return CheckResult("image.entrypoint", title, "error", 0.0, measured, reason=error.message, hint=error.hint)
    measured |= {"exit_code": ended.exit_code, "still_running": ended.timed_out, "output": said}
    if ended.exit_code in (126, 127):
        return CheckResult(
            "image.entrypoint", title, "fail", ended.seconds, measured,
            reason=f"exit code {ended.exit_code}: {(said or ['no output'])[-1]}",
            hint="the entrypoint runs, but a program it calls is missing or not executable",
        )  # fmt: skip
    return CheckResult("image.entrypoint", title, "pass", round(ended.seconds, 3), measured)


def _other_platform(ref: Reference, digest: str) -> CannotTell:
    """The registry has the image, but not for this engine's machine."""
    try:
        repository = Repository.of(ref)
        config = json.loads(repository.read_blob(str(repository.get_manifest(digest).document["config"]["digest"])))
        there = f"{config.get('os')}/{config.get('architecture')}"
    except (RegistryError, KeyError, ValueError):
        there = "other platforms"
    machine = _MACHINES.get(platform.machine(), platform.machine())
    return CannotTell(
        f"{ref} is for {there}, this engine runs linux/{machine}: it cannot be verified here",
        hint="verify it on a machine of that kind",
    )


def _digest_there(ref: Reference) -> str | None:
    """Digest of the reference in its registry now; None when it is not there or the registry does not answer."""
    try:
        return Repository.of(ref).resolve(ref.selector)
    except RegistryError:
        return None


def _digest_of(found: Any, ref: Reference) -> str | None:
    """A digest of the engine's image that the registry serves under this name.

    The engine remembers digests of images that never left it, so only the registry can confirm one.
    """
    name = _engine_name(ref.name)
    known = [str(d).partition("@") for d in found.attrs.get("RepoDigests") or []]
    for digest in dict.fromkeys(d for repository, _, d in known if repository == name and is_digest(d)):
        try:
            return Repository.of(ref).resolve(digest)
        except NotThere:
            continue
        except RegistryError:
            return None
    return None


def _engine_name(name: str) -> str:
    """Docker shows Hub images without the host."""
    return name.removeprefix("docker.io/library/").removeprefix("docker.io/")


def _describe(client: docker.DockerClient, found: Any, reference: str, digest: str | None) -> Image:
    attrs: dict[str, Any] = found.attrs
    architecture = str(attrs.get("Architecture") or "")
    engine = _MACHINES.get(str(client.info().get("Architecture") or platform.machine()), "")
    if architecture and engine and architecture != engine:
        raise CannotTell(
            f"{reference} is for {architecture}, this engine runs {engine}: it cannot be verified here",
            hint=f"verify it on a {architecture} machine, or pull the {engine} image",
        )
    return Image(reference, str(found.id), digest, architecture, attrs.get("Config") or {})
