"""Pure rules about the place: injection mode, sandbox, limits, shared memory, locale, CDI specification."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MIB = 1 << 20
GIB = 1 << 30


@dataclass(frozen=True)
class Problem:
    """What is wrong and what to do."""

    what: str
    fix: str


def injection_mode(variables: Mapping[str, str], mountinfo: str, contained: bool) -> str:
    """How the GPU's files got in: ``cdi``, ``legacy``, ``mounted`` (bound in some other way), ``bare``, ``none``.

    CDI specs of the toolkit set NVIDIA_VISIBLE_DEVICES=void and NVIDIA_CTK_LIBCUDA_DIR; the legacy hook mounts a tmpfs
    over /proc/driver/nvidia and leaves the variable as the image or user had it.
    """
    if variables.get("NVIDIA_VISIBLE_DEVICES") == "void" or "NVIDIA_CTK_LIBCUDA_DIR" in variables:
        return "cdi"
    if not contained:
        return "bare"
    if re.search(r" /proc/driver/nvidia ", mountinfo):
        return "legacy"
    if re.search(r"libcuda\.so|/dev/nvidia|nvidia/lib64", mountinfo):
        return "mounted"
    return "none"


def sandbox_kind(facts: Mapping[str, str]) -> dict[str, str | None]:
    """``{container, machine}`` from texts: version, release, cgroup, environ1, cpuinfo, vendor, product, files.

    container: docker, podman, kubernetes, lxc, systemd-nspawn, containerd, None. machine: gvisor, firecracker, kvm,
    xen, hyper-v, vmware, wsl2, None (bare metal, as far as can be seen).
    """
    files = facts.get("files", "")
    cgroup, environ = facts.get("cgroup", ""), facts.get("environ1", "")
    container: str | None = None
    if "kubepods" in cgroup or "KUBERNETES_SERVICE_HOST" in environ:
        container = "kubernetes"
    elif "/run/.containerenv" in files or "libpod" in cgroup or "container=podman" in environ:
        container = "podman"
    elif "container=lxc" in environ or "/lxc" in cgroup:
        container = "lxc"
    elif "container=systemd-nspawn" in environ:
        container = "systemd-nspawn"
    elif "/.dockerenv" in files or "docker" in cgroup:
        container = "docker"
    elif "containerd" in cgroup or "cri-" in cgroup:
        container = "containerd"
    text = f"{facts.get('version', '')} {facts.get('release', '')}".lower()
    dmi = f"{facts.get('vendor', '')} {facts.get('product', '')}".lower()
    machine: str | None = None
    if "gvisor" in text or "gvisor" in facts.get("dmesg", "").lower() or facts.get("release", "") == "4.4.0":
        machine = "gvisor"
    elif "firecracker" in dmi or re.search(r"-fc\b|-fc-", facts.get("release", "")):
        machine = "firecracker"
    elif "microsoft" in text and "wsl" in text:
        machine = "wsl2"
    elif "microsoft" in dmi:
        machine = "hyper-v"
    elif "vmware" in dmi:
        machine = "vmware"
    elif "xen" in dmi:
        machine = "xen"
    elif "kvm" in dmi or "qemu" in dmi or "amazon ec2" in dmi or "google" in dmi or "openstack" in dmi:
        machine = "kvm"
    elif re.search(r"^flags\s*:.*\bhypervisor\b", facts.get("cpuinfo", ""), re.MULTILINE):
        machine = "virtual machine of unknown kind"
    return {"container": container, "machine": machine}


def limit_problems(limits: Mapping[str, Any], floors: Mapping[str, Any]) -> tuple[list[Problem], list[str]]:
    """Limits of the container against floors. ``(problems, notes)``.

    ``limits``: cpus, memory_bytes (None: no limit), pids (None: no limit), memlock_bytes (None: unlimited), open_files.
    """
    problems, notes = [], []
    cpus, want = float(limits.get("cpus") or 0), float(floors.get("min_cpus", 1))
    if cpus < want:
        problems.append(Problem(f"{cpus:g} CPUs, the profile wants {want:g}", "docker run --cpus, or a larger server"))
    memory = limits.get("memory_bytes")
    gib = float(floors.get("min_memory_gib", 2))
    if memory is not None and memory < gib * GIB:
        problems.append(
            Problem(f"memory is limited to {memory / GIB:.1f} GiB, the profile wants {gib:g}", "docker run --memory")
        )
    pids = limits.get("pids")
    if pids is not None and pids < 256:
        problems.append(
            Problem(f"at most {pids} processes: data loaders and compilers need more", "docker run --pids-limit=2048")
        )
    files = limits.get("open_files")
    if files is not None and files < 1024:
        problems.append(Problem(f"at most {files} open files", "docker run --ulimit nofile=65536"))
    memlock = limits.get("memlock_bytes")
    if memlock is not None and memlock < 64 * MIB:
        notes.append(
            f"locked memory is limited to {memlock // 1024} KiB: RDMA and some NCCL transports need --ulimit memlock=-1"
        )
    return problems, notes


def shm_problem(size: int, free: int, writable: bool, floor: int, reason: str = "") -> Problem | None:
    """``size`` and ``free`` of /dev/shm in bytes against the floor; Docker's default is 64 MiB."""
    if not writable:
        return Problem(f"/dev/shm cannot be written: {reason}", "mount it read-write: docker run --shm-size=8g")
    if size < floor:
        return Problem(
            f"/dev/shm is {size // MIB} MiB, the profile wants {floor // MIB}",
            "start the container with --shm-size=8g (or --ipc=host): data loader workers and NCCL pass data through it",
        )
    if free < floor // 2:
        return Problem(
            f"/dev/shm has {free // MIB} of {size // MIB} MiB free", "remove what other processes left in it"
        )
    return None


def locale_problem(facts: Mapping[str, Any]) -> Problem | None:
    """``facts``: codeset (of the C library under the environment), and round trips stdio, filename, argv (bool)."""
    broken = [name for name in ("stdio", "filename", "argv") if facts.get(name) is False]
    if broken:
        return Problem(
            f"Chinese text and emoji do not survive {', '.join(broken)} (codeset {facts.get('codeset')})",
            "set LANG=C.UTF-8 in the image (ENV LANG=C.UTF-8) and remove PYTHONIOENCODING and LC_ALL",
        )
    codeset = str(facts.get("codeset") or "")
    if codeset.upper().replace("-", "") != "UTF8":
        return Problem(
            f"the locale is {facts.get('locale') or 'POSIX'}: its text is {codeset or 'ASCII'}, not UTF-8. Python "
            "works around it, other programs do not",
            "set LANG=C.UTF-8 in the image (ENV LANG=C.UTF-8)",
        )
    return None


def cdi_problems(spec: str, kernel_driver: str | None, existing: Mapping[str, bool]) -> list[Problem]:
    """A CDI specification (YAML or JSON text) against the loaded driver and the device nodes that exist.

    ``existing``: path of each node or mount the spec names → whether it is there.
    """
    problems = []
    versions = set(re.findall(r"lib(?:cuda|nvidia-ml|nvidia-ptxjitcompiler)\.so\.(\d+\.[\d.]+\d)", spec))
    if kernel_driver is not None and versions and kernel_driver not in versions:
        problems.append(
            Problem(
                f"the CDI specification is of driver {', '.join(sorted(versions))}, the loaded one is {kernel_driver}",
                "write it again: nvidia-ctk cdi generate --output=/var/run/cdi/nvidia.yaml",
            )
        )
    gone = sorted(path for path, there in existing.items() if not there)
    if gone:
        problems.append(
            Problem(
                f"the CDI specification names {len(gone)} files that are not there: {', '.join(gone[:4])}",
                "write it again: nvidia-ctk cdi generate --output=/var/run/cdi/nvidia.yaml",
            )
        )
    if not re.search(r"/dev/nvidia\d+|/dev/dxg", spec):
        problems.append(
            Problem("the CDI specification names no GPU device node", "load the driver, then write it again")
        )
    return problems


def cdi_paths(spec: str) -> list[str]:
    """Host paths of device nodes and mounts that a CDI specification names."""
    return sorted(set(re.findall(r"(?:hostPath|path)[\"']?:\s*[\"']?(/(?:dev|usr|lib|run|etc|opt)/[^\s\"',]+)", spec)))
