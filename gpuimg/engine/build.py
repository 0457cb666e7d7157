"""Builds through buildx: one Dockerfile target → an image in a registry, by digest. BuildKit does the work."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path

from gpuimg.errors import EnvironmentFault, GpuimgError

CA_BUNDLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT", "CURL_CA_BUNDLE")
"""Environment variables that name a company's CA bundle, first that is set wins."""
MIN_ENGINE = (23, 0)


class BuildFailed(GpuimgError):
    """BuildKit ran and the build failed (exit 1); the message ends with the step's own words."""


def require_buildx() -> None:
    """Raises EnvironmentFault when the docker command, its buildx plugin or a new enough engine is missing."""
    if shutil.which("docker") is None:
        raise EnvironmentFault("there is no docker command on this machine", hint="bin/setup-engine, or: gpuimg doctor")
    found = subprocess.run(["docker", "buildx", "version"], capture_output=True, text=True, check=False)
    if found.returncode:
        raise EnvironmentFault(
            "docker has no buildx plugin", hint="sudo apt-get install docker-buildx (or docker-buildx-plugin)"
        )
    server = subprocess.run(
        ["docker", "version", "--format", "{{.Server.Version}}"], capture_output=True, text=True, check=False
    )
    if server.returncode:
        raise EnvironmentFault(
            f"no Docker Engine answers: {server.stderr.strip()[-200:]}", hint="start it, or run: gpuimg doctor"
        )
    numbers = tuple(int(n) for n in re.findall(r"\d+", server.stdout)[:2])
    if numbers < MIN_ENGINE:
        raise EnvironmentFault(
            f"the engine is Docker {server.stdout.strip()}; gpuimg needs {MIN_ENGINE[0]}.{MIN_ENGINE[1]} or newer",
            hint="update the engine (BuildKit there is too old)",
        )


def build_target(
    context: Path,
    *,
    target: str | None,
    reference: str,
    arguments: Mapping[str, str],
    log: Path,
    builder: str | None = None,
    platform: str | None = None,
    say: Callable[[str], object] = lambda _: None,
) -> str:
    """Build ``target`` of the Dockerfile in ``context``, push it as ``reference``; returns the manifest's digest.

    The whole output goes to ``log``; ``say`` gets a line for each step. The host's CA bundle and proxy settings reach
    the build as a secret and as BuildKit's predefined arguments, never as part of the image.

    Raises:
        BuildFailed: a step failed. EnvironmentFault: engine, network, registry or disk.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="gpuimg-build-") as folder:
        metadata = Path(folder, "metadata.json")
        command = [
            "docker", "buildx", "build", "--progress", "plain", "--provenance=false",
            "--metadata-file", str(metadata),
            "--output", f"type=image,name={reference},push=true,oci-mediatypes=true,"
            "compression=zstd,compression-level=3,force-compression=true",
        ]  # fmt: skip
        command += ["--builder", builder] if builder else []
        # the engine's own builder shares this machine's network: engines without a bridge (and odd MTUs, VPN, DNS) work;
        # another builder would need an entitlement for that
        command += ["--network", "host"] if builder_driver(builder) == "docker" else []
        command += ["--platform", platform] if platform else []
        command += ["--target", target] if target else []
        for name, value in sorted(arguments.items()):
            command += ["--build-arg", f"{name}={value}"]
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"):
            if os.environ.get(name) or os.environ.get(name.lower()):
                command += ["--build-arg", name]
        bundle = ca_bundle()
        command += ["--secret", f"id=ca,src={bundle}"] if bundle else []
        code = _run([*command, str(context)], log, say)
        if code:
            raise _explain(log)
        document = json.loads(metadata.read_text())
    digest = document.get("containerimage.digest")
    if not isinstance(digest, str):
        raise EnvironmentFault("buildx pushed the image but named no digest", hint="update the buildx plugin")
    return digest


@lru_cache(maxsize=8)
def builder_driver(builder: str | None = None) -> str:
    """Driver of a buildx builder ('docker' is the engine's own); of the current one without a name.

    Raises:
        EnvironmentFault: there is no such builder, or it does not answer.
    """
    command = ["docker", "buildx", "inspect", *([builder] if builder else [])]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    found = re.search(r"^Driver:\s*(\S+)", done.stdout, re.MULTILINE)
    if done.returncode or found is None:
        raise EnvironmentFault(
            f"buildx builder {builder or '(current)'}: {done.stderr.strip()[-200:] or 'no answer'}",
            hint="docker buildx ls shows the builders there are",
        )
    return found.group(1)


def ca_bundle() -> Path | None:
    """The CA bundle this machine's user has set, if any; builds get it as a secret."""
    for name in CA_BUNDLES:
        value = os.environ.get(name)
        if value and Path(value).is_file():
            return Path(value)
    return None


def _run(command: list[str], log: Path, say: Callable[[str], object]) -> int:
    with log.open("w", encoding="utf-8") as out:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
            start_new_session=True, env={**os.environ, "BUILDKIT_PROGRESS": "plain"},
        )  # fmt: skip
        assert process.stdout is not None
        _RUNNING.add(process)
        try:
            for line in process.stdout:
                out.write(line)
                step = re.match(r"#\d+ \[(.+?)\] (.*)", line)
                if step:
                    say(f"{step.group(1)} {step.group(2)}"[:110])
            return process.wait()
        except BaseException:
            _stop(process)
            process.wait(20)
            raise
        finally:
            _RUNNING.discard(process)


_RUNNING: set[subprocess.Popen[str]] = set()


def stop_builds() -> None:
    """Stop every build this process has running, for Ctrl-C while they run in other threads.

    BuildKit drops a build when its client goes; what was finished stays in its cache.
    """
    for process in list(_RUNNING):
        _stop(process)


def _stop(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)


_CAUSES = (
    (r"no space left on device", "the disk is full", "docker system prune, or free space below Docker's data-root"),
    (r"connect: connection refused", "a registry or the engine cannot be reached", "is the registry running?"),
    (r"certificate signed by unknown authority|CERTIFICATE_VERIFY_FAILED|self-signed certificate",
     "a certificate is not trusted inside the build", "export SSL_CERT_FILE=<your CA bundle>; it is a secret there"),
    (r"Temporary failure in name resolution|Could not resolve", "the build has no network", "check DNS and proxy"),
)  # fmt: skip


def _explain(log: Path) -> GpuimgError:
    text = log.read_text(encoding="utf-8", errors="replace")
    lines = [line for line in text.splitlines() if line.strip()]
    said = next((line for line in reversed(lines) if "ERROR" in line), lines[-1] if lines else "no output")
    for pattern, what, advice in _CAUSES:
        if re.search(pattern, text):
            return EnvironmentFault(f"the build failed: {what}: {said.strip()[:300]}", hint=f"{advice} (log: {log})")
    tail = "\n".join(line[:200] for line in lines[-8:])
    return BuildFailed(f"the build failed: {said.strip()[:300]}\n{tail}", hint=f"whole log: {log}")
