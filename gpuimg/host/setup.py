"""What this machine needs before images can be built and run on its GPUs: facts gathered here, judged by pure rules.

Nothing is changed: every finding names the command that mends it, for the user to run.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpuimg.nouns import HostFinding

_TOOLKIT_DOC = "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html"
_CDI_DOC = "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/cdi-support.html"
_DOCKER_DOC = "https://docs.docker.com/engine/install/"
_DRIVER_DOC = "https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/"
_STORE_DOC = "https://docs.docker.com/engine/storage/containerd/"
_LOST_DOC = "https://github.com/NVIDIA/nvidia-docker/issues/1730"
_BULLETIN = "https://nvd.nist.gov/vuln/detail/CVE-2025-23266"
_OLDEST_ENGINE = (23, 0)
"""BuildKit is the builder from Docker 23 on."""
_CDI_ENGINE = (25, 0)
_SAFE_TOOLKIT = (1, 17, 8)
"""Older ones let a container out (CVE-2024-0132, CVE-2025-23266)."""
_NEEDED_GIB, _GOOD_GIB = 20, 60
"""One framework image takes 8 to 15 GiB unpacked, and as much again while it is built."""


@dataclass(frozen=True)
class CdiSpec:
    """One spec file for nvidia.com/gpu."""

    path: str
    devices: tuple[str, ...] = ()
    driver: str | None = None
    """Version in the names of the driver's files."""
    lacking: tuple[str, ...] = ()
    """Files it names that are not on this machine."""
    error: str | None = None


@dataclass(frozen=True)
class Setup:
    """What was found on this machine."""

    docker: str | None = None
    """Path of the docker command."""
    engine: dict[str, Any] | None = None
    """``docker info``, None when no engine answered."""
    engine_error: str = ""
    engine_local: bool = True
    buildx: str | None = None
    toolkit: str | None = None
    """Version of nvidia-ctk."""
    toolkit_config: str | None = None
    """/etc/nvidia-container-runtime/config.toml."""
    specs: tuple[CdiSpec, ...] = ()
    driver: str | None = None
    """The kernel module that is loaded."""
    library_driver: str | None = None
    """Version of the libcuda that the loader finds."""
    cards: int = 0
    """NVIDIA display controllers on the PCI bus (or /dev/dxg under WSL)."""
    nodes: tuple[str, ...] = ()
    nouveau: bool = False
    container: bool = False
    systemd: bool = False
    wsl: bool = False
    free_gib: float | None = None
    """Free on the disk of the engine's image store."""
    registries: tuple[tuple[str, str | None], ...] = field(default=())
    """(registry, what is wrong with it or None); the caller asks them."""


def judge_setup(setup: Setup) -> tuple[HostFinding, ...]:
    """Every finding, worst first; ``ok`` ones say what was looked at and is fine."""
    found = [*_engine(setup), *_builder(setup), *_gpu(setup), *_toolkit(setup), *_cdi(setup), *_space(setup)]
    found += [_registry(name, problem) for name, problem in setup.registries]
    rank = {"fail": 0, "warn": 1, "ask": 2, "ok": 3}
    return tuple(sorted(found, key=lambda f: rank[f.severity]))


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:3])


def _start(setup: Setup) -> str:
    return "sudo systemctl start docker" if setup.systemd else "sudo service docker start (or sudo dockerd &)"


def _restart(setup: Setup) -> str:
    return "sudo systemctl restart docker" if setup.systemd else "sudo service docker restart"


def _engine(setup: Setup) -> list[HostFinding]:
    if setup.engine is None:
        error = setup.engine_error
        if setup.docker is None:
            if setup.container:
                text = "no Docker, and this machine is itself a container: most rented GPU servers allow none inside"
                fix = "check the environment as it is: gpuimg verify --here; build images on another machine"
                return [HostFinding("docker", "fail", text, fix, "https://github.com/moby/moby/issues/32323")]
            return [
                HostFinding(
                    "docker",
                    "fail",
                    "Docker is not installed",
                    "curl -fsSL https://get.docker.com | sudo sh",
                    _DOCKER_DOC,
                )
            ]
        if "permission denied" in error.lower():
            text = "the Docker engine refuses this user (no permission on its socket)"
            fix = "sudo usermod -aG docker $USER && newgrp docker"
            return [
                HostFinding("docker", "fail", text, fix, "https://docs.docker.com/engine/install/linux-postinstall/")
            ]
        short = " ".join(error.split())[:200]
        return [HostFinding("docker", "fail", f"no Docker engine answers: {short}", _start(setup), _DOCKER_DOC)]
    version = str(setup.engine.get("ServerVersion", ""))
    out = []
    if _version(version)[:2] < _OLDEST_ENGINE:
        text = f"Docker engine {version} is older than 23.0: its default builder is not BuildKit"
        out.append(
            HostFinding("docker-version", "fail", text, "curl -fsSL https://get.docker.com | sudo sh", _DOCKER_DOC)
        )
    else:
        out.append(HostFinding("docker", "ok", f"Docker engine {version} answers", None, _DOCKER_DOC))
    status = json.dumps(setup.engine.get("DriverStatus") or [])
    if "io.containerd.snapshotter" not in status:
        text = "the classic image store: an image that is built and loaded gets another digest when it is pushed"
        fix = f'add "features": {{"containerd-snapshotter": true}} to /etc/docker/daemon.json, then {_restart(setup)}'
        out.append(HostFinding("image-store", "warn", text, fix, _STORE_DOC))
    for warning in setup.engine.get("Warnings") or []:
        if re.search(r"insecure|without encryption|No swap limit|bridge-nf", str(warning), re.I) is None:
            out.append(HostFinding("docker-warning", "warn", str(warning)[:200], "see docker info", _DOCKER_DOC))
    return out


def _builder(setup: Setup) -> list[HostFinding]:
    if setup.docker is None or setup.engine is None:
        return []
    if setup.buildx is None:
        fix = "sudo apt-get install -y docker-buildx-plugin (Debian's own Docker: docker-buildx)"
        return [HostFinding("buildx", "fail", "docker buildx is missing: images cannot be built", fix, _DOCKER_DOC)]
    return [HostFinding("buildx", "ok", f"buildx {setup.buildx}", None, _DOCKER_DOC)]


def _gpu(setup: Setup) -> list[HostFinding]:
    if not setup.engine_local:
        return [
            HostFinding(
                "gpu", "ask", "the engine is on another machine: its GPUs are not looked at", "run doctor there"
            )
        ]
    if setup.cards == 0:
        text = "no NVIDIA card on this machine: images can be built and checked on the CPU only"
        return [HostFinding("gpu", "ask", text, "verify on a GPU host; a certificate for GPUs needs one")]
    if setup.wsl:
        return [HostFinding("gpu", "ok", "WSL2 with a GPU", None, "https://docs.nvidia.com/cuda/wsl-user-guide/")]
    if setup.driver is None:
        if setup.nouveau:
            text = f"{setup.cards} NVIDIA card(s), held by nouveau in place of NVIDIA's driver"
            fix = (
                "echo 'blacklist nouveau' | sudo tee /etc/modprobe.d/blacklist-nouveau.conf; sudo update-initramfs -u; "
                "install the driver; reboot"
            )
            return [HostFinding("driver", "fail", text, fix, _DRIVER_DOC)]
        text = f"{setup.cards} NVIDIA card(s), and no NVIDIA driver loaded"
        fix = "sudo modprobe nvidia; if it is not installed: sudo ubuntu-drivers install --gpgpu (or NVIDIA's packages)"
        return [HostFinding("driver", "fail", text, fix, _DRIVER_DOC)]
    out = []
    if setup.library_driver and setup.library_driver != setup.driver:
        text = f"libcuda is of driver {setup.library_driver}, the loaded kernel module of {setup.driver}"
        fix = "sudo reboot (the driver was updated; or take cuda-compat off the loader's path)"
        out.append(HostFinding("driver-mismatch", "fail", text, fix, _DRIVER_DOC))
    else:
        out.append(HostFinding("driver", "ok", f"driver {setup.driver}, {setup.cards} card(s)", None, _DRIVER_DOC))
    if not any(re.fullmatch(r"/dev/nvidia\d+", node) for node in setup.nodes) or "/dev/nvidia-uvm" not in setup.nodes:
        text = f"device nodes are missing (there are: {', '.join(setup.nodes) or 'none'})"
        out.append(HostFinding("device-nodes", "warn", text, "sudo nvidia-modprobe -u -c=0", _DRIVER_DOC))
    return out


def _toolkit(setup: Setup) -> list[HostFinding]:
    if setup.cards == 0 or not setup.engine_local:
        return []
    runtimes = (setup.engine or {}).get("Runtimes") or {}
    install = (
        "install nvidia-container-toolkit from NVIDIA's repository, then: sudo nvidia-ctk runtime configure "
        f"--runtime=docker && {_restart(setup)}"
    )
    if setup.toolkit is None and "nvidia" not in runtimes:
        text = "the NVIDIA Container Toolkit is missing: docker run --gpus all answers 'could not select device driver'"
        return [HostFinding("toolkit", "fail", text, install, _TOOLKIT_DOC)]
    out = []
    if setup.toolkit is None:
        out.append(
            HostFinding("toolkit", "warn", "a runtime 'nvidia' is registered, but nvidia-ctk is missing", install)
        )
    elif _version(setup.toolkit) < _SAFE_TOOLKIT:
        text = f"NVIDIA Container Toolkit {setup.toolkit}: a container can break out of it before 1.17.8"
        fix = "sudo apt-get update && sudo apt-get install --only-upgrade -y nvidia-container-toolkit"
        out.append(HostFinding("toolkit-version", "warn", text, fix, _BULLETIN))
    else:
        out.append(HostFinding("toolkit", "ok", f"NVIDIA Container Toolkit {setup.toolkit}", None, _TOOLKIT_DOC))
    config = setup.toolkit_config or ""
    mode = re.search(r'^\s*mode\s*=\s*"(\w[\w-]*)"', config, re.MULTILINE)
    legacy = mode is not None and mode.group(1) == "legacy"
    if legacy:
        text = (
            "the toolkit is set to legacy mode: its hook changes a running container's devices behind the engine's back"
        )
        fix = f"sudo nvidia-ctk config --in-place --set nvidia-container-runtime.mode=auto && {_restart(setup)}"
        out.append(HostFinding("toolkit-mode", "warn", text, fix, _CDI_DOC))
    if "nvidia" in runtimes and (setup.engine or {}).get("CgroupDriver") == "systemd" and not setup.specs:
        text = "without CDI, systemctl daemon-reload takes the GPUs away from running containers (NVML: Unknown Error)"
        out.append(HostFinding("lost-devices", "warn", text, "use CDI (see the cdi finding)", _LOST_DOC))
    rootless = any("rootless" in str(option) for option in (setup.engine or {}).get("SecurityOptions") or [])
    if rootless and not re.search(r"^\s*no-cgroups\s*=\s*true", config, re.MULTILINE):
        text = "a rootless engine, and the toolkit may not change cgroups there"
        fix = "sudo nvidia-ctk config --in-place --set nvidia-container-cli.no-cgroups, or use CDI"
        out.append(HostFinding("rootless", "warn", text, fix, _TOOLKIT_DOC))
    if (setup.engine or {}).get("DefaultRuntime") == "nvidia":
        text = (
            "nvidia is the default runtime: builds run through it too, and an image's NVIDIA_REQUIRE_CUDA can stop them"
        )
        fix = f"sudo nvidia-ctk runtime configure --runtime=docker --set-as-default=false && {_restart(setup)}"
        out.append(HostFinding("default-runtime", "warn", text, fix, _TOOLKIT_DOC))
    return out


def _cdi(setup: Setup) -> list[HostFinding]:
    if setup.cards == 0 or not setup.engine_local:
        return []
    generate = "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"
    out = []
    for spec in setup.specs:
        if spec.error:
            out.append(
                HostFinding(
                    "cdi", "fail", f"{spec.path} cannot be read: {spec.error}", f"{generate} (mode 644)", _CDI_DOC
                )
            )
        elif (spec.driver and setup.driver and spec.driver != setup.driver) or spec.lacking:
            why = (
                f"made for driver {spec.driver}, loaded is {setup.driver}"
                if spec.driver and setup.driver and spec.driver != setup.driver
                else f"names files that are gone: {', '.join(spec.lacking[:3])}"
            )
            out.append(HostFinding("cdi-stale", "fail", f"{spec.path} is stale: {why}", generate, _CDI_DOC))
        else:
            names = ", ".join(spec.devices[:10])
            out.append(HostFinding("cdi", "ok", f"{spec.path}: {names}", None, _CDI_DOC))
    runtimes = (setup.engine or {}).get("Runtimes") or {}
    if not setup.specs:
        only_way = setup.toolkit is not None and "nvidia" not in runtimes
        needs = "" if setup.toolkit else " (after installing the toolkit)"
        text = "no CDI spec for nvidia.com/gpu"
        out.append(HostFinding("cdi", "fail" if only_way else "warn", text, generate + needs, _CDI_DOC))
    if setup.engine is not None and not setup.engine.get("CDISpecDirs"):
        version = str(setup.engine.get("ServerVersion", ""))
        if _version(version)[:2] < _CDI_ENGINE:
            text = f"Docker engine {version} knows no CDI (25.0 and newer do)"
            out.append(HostFinding("cdi-engine", "warn", text, "curl -fsSL https://get.docker.com | sudo sh", _CDI_DOC))
        else:
            fix = f"sudo nvidia-ctk runtime configure --runtime=docker --cdi.enabled && {_restart(setup)}"
            out.append(HostFinding("cdi-engine", "warn", "CDI is switched off in the engine", fix, _CDI_DOC))
    return out


def _space(setup: Setup) -> list[HostFinding]:
    if setup.free_gib is None:
        return []
    root = str((setup.engine or {}).get("DockerRootDir") or "/var/lib/docker")
    text = f"{setup.free_gib:.0f} GiB free for images ({root})"
    fix = "docker system df; docker system prune; docker builder prune; or move data-root to a larger disk"
    if setup.free_gib < _NEEDED_GIB:
        return [
            HostFinding("disk", "fail", f"only {text}: a framework image needs 8 to 15 GiB, twice while built", fix)
        ]
    if setup.free_gib < _GOOD_GIB:
        return [HostFinding("disk", "warn", f"{text}: enough for a few framework images", fix)]
    return [HostFinding("disk", "ok", text)]


def _registry(name: str, problem: str | None) -> HostFinding:
    if problem is None:
        return HostFinding("registry", "ok", f"registry {name} answers")
    low = problem.lower()
    if "http response to https" in low or "wrong version number" in low or "record layer" in low:
        fix = f'add "insecure-registries": ["{name}"] to /etc/docker/daemon.json, or give it TLS'
    elif "certificate" in low:
        fix = f"put its CA into /etc/docker/certs.d/{name}/ca.crt and the system's store"
    else:
        fix = "check its address, DNS, proxy and firewall; for Docker Hub set up a mirror (registry-mirrors)"
    return HostFinding("registry", "fail", f"registry {name}: {problem[:200]}", fix)


# --- gathering --------------------------------------------------------------------------------------------------


def read_setup(root: Path = Path("/")) -> Setup:
    """Look at this machine; nothing is written, no network is used.

    ``root`` is where its files are looked for (tests give a folder).
    """
    docker = shutil.which("docker")
    engine, error = _docker_info(docker)
    buildx = None
    if docker:
        said = _ask([docker, "buildx", "version"])[1]
        found = re.search(r"buildx \S*?v?(\d+\.\d+\.\d+\S*)", said)
        buildx = found.group(1) if found else None
    ctk = re.search(r"version (\d+\.\d+\.\d+)", _ask(["nvidia-ctk", "--version"])[1])
    version_file = root / "proc/driver/nvidia/version"
    kernel = re.search(r"Kernel Module\s+(?:for \S+\s+)?(\d[\d.]+)", _text(version_file) or "")
    library = re.search(r"libcuda\.so\.(\d{3}\.[\d.]+)", _library_target(_ask(["ldconfig", "-p"])[1]))
    directories = [str(d) for d in (engine or {}).get("CDISpecDirs") or ["/etc/cdi", "/var/run/cdi"]]
    address = os.environ.get("DOCKER_HOST", "")
    local = not address or address.startswith("unix://")
    data = Path(str((engine or {}).get("DockerRootDir") or "/var/lib/docker"))
    return Setup(
        docker=docker,
        engine=engine,
        engine_error=error,
        engine_local=local,
        buildx=buildx,
        toolkit=ctk.group(1) if ctk else None,
        toolkit_config=_text(root / "etc/nvidia-container-runtime/config.toml"),
        specs=tuple(spec for d in directories for spec in read_specs(root / d.lstrip("/"))),
        driver=kernel.group(1) if kernel else None,
        library_driver=library.group(1) if library else None,
        cards=_cards(root),
        nodes=tuple(sorted(f"/dev/{p.name}" for p in (root / "dev").glob("nvidia*") if not p.is_dir())),
        nouveau=(root / "sys/module/nouveau").exists(),
        container=(root / ".dockerenv").exists() or (root / "run/.containerenv").exists(),
        systemd=(root / "run/systemd/system").exists(),
        wsl=(root / "dev/dxg").exists(),
        free_gib=_free(data) if local else None,
    )


def read_specs(directory: Path) -> list[CdiSpec]:
    """CDI specs for nvidia.com/gpu in a folder: their devices, and whether the files they name are there."""
    import yaml

    out = []
    for path in sorted([*directory.glob("*.json"), *directory.glob("*.yaml"), *directory.glob("*.yml")]):
        try:
            text = path.read_text(encoding="utf-8")
            spec = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        except (OSError, ValueError, yaml.YAMLError) as error:
            out.append(CdiSpec(str(path), error=f"{type(error).__name__}: {str(error).splitlines()[0][:120]}"))
            continue
        if not isinstance(spec, dict) or spec.get("kind") != "nvidia.com/gpu":
            continue
        paths = re.findall(r"hostPath['\"]?\s*:\s*['\"]?(/[^\s'\",}]+)", text)
        versions = [v for p in paths for v in re.findall(r"lib(?:cuda|nvidia-ml)\.so\.(\d{3}\.[\d.]+)", p)]
        lacking = tuple(p for p in dict.fromkeys(paths) if not Path(p).exists())
        devices = tuple(str(d.get("name")) for d in spec.get("devices") or [] if isinstance(d, dict))
        out.append(CdiSpec(str(path), devices, versions[0] if versions else None, lacking))
    return out


def _docker_info(docker: str | None) -> tuple[dict[str, Any] | None, str]:
    if docker is None:
        return None, "no docker command"
    code, text = _ask([docker, "info", "--format", "{{json .}}"])
    start = text.find("{")
    try:
        info: dict[str, Any] = json.JSONDecoder().raw_decode(text[start:])[0] if start >= 0 else {}
    except ValueError:
        info = {}
    errors = info.get("ServerErrors") or []
    if errors or not info.get("ServerVersion"):
        return None, "; ".join(str(e) for e in errors) or text.strip() or f"docker info ended with {code}"
    return info, ""


def _library_target(listing: str) -> str:
    found = re.search(r"libcuda\.so\.1 \(libc6,(?:x86-64|AArch64)\S*\) => (\S+)", listing)
    return os.path.realpath(found.group(1)) if found else ""


def _cards(root: Path) -> int:
    count = 0
    for device in (root / "sys/bus/pci/devices").glob("*"):
        vendor, kind = _text(device / "vendor"), _text(device / "class")
        count += (vendor or "").strip() == "0x10de" and (kind or "").strip().startswith("0x03")
    nodes = [p for p in (root / "dev").glob("nvidia*") if re.fullmatch(r"nvidia\d+", p.name)]
    return max(count, len(nodes), int((root / "dev/dxg").exists()))


def _free(path: Path) -> float | None:
    while not path.exists() and path != path.parent:
        path = path.parent
    try:
        return shutil.disk_usage(path).free / 2**30
    except OSError:
        return None


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def _ask(command: list[str]) -> tuple[int, str]:
    """Exit status and both outputs; 127 when there is no such program."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False, errors="replace")
    except OSError as error:
        return 127, str(error)
    except subprocess.TimeoutExpired:
        return 124, f"{command[0]} did not answer in 30 s"
    return done.returncode, done.stdout + done.stderr
