"""host.*: the place itself, before any framework: driver path, limits, shared memory, locale, clock, disk."""

from __future__ import annotations

import glob
import mmap
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from . import judge_host
from .cards import driver_tables
from .judge_host import GIB, MIB
from .judge_versions import BRANDS, driver_path, require
from .registry import Context, Outcome, check, failed, not_applicable, passed, skipped


def read(path: str, limit: int = 1 << 20) -> str:
    """A file's text, or '' when it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(limit).decode("utf-8", "replace").replace("\0", " ")
    except OSError:
        return ""


def _joined(problems: list[judge_host.Problem]) -> tuple[str, str]:
    return "; ".join(p.what for p in problems), "; ".join(dict.fromkeys(p.fix for p in problems))


def in_container() -> bool:
    """Whether anything says that this is a container."""
    found = judge_host.sandbox_kind(_sandbox_texts())
    return found["container"] is not None


def _sandbox_texts() -> dict[str, str]:
    return {
        "version": read("/proc/version"),
        "release": os.uname().release,
        "cgroup": read("/proc/1/cgroup") + read("/proc/self/cgroup"),
        "environ1": read("/proc/1/environ"),
        "cpuinfo": read("/proc/cpuinfo", 8192),
        "vendor": read("/sys/class/dmi/id/sys_vendor").strip(),
        "product": read("/sys/class/dmi/id/product_name").strip(),
        "files": " ".join(p for p in ("/.dockerenv", "/run/.containerenv") if os.path.exists(p)),
    }


@check(
    "host.driver",
    title="Driver fits the wheel_cuda",
    proves="the framework's CUDA runs on this driver, and which way: native, minor-version or forward compatibility",
    how="wheel_cuda from the framework, driver from NVML and /proc/driver/nvidia/version, driver_cuda from NVML and "
    "libcuda; whether a cuda-compat libcuda is the one loaded",
    threshold="native if driver ≥ the toolkit's own; minor from 450.80.02 (11.x), 525.60.13 (12.x), 580 (13.x); "
    "forward only through cuda-compat on data-centre cards; else it fails",
    source="https://docs.nvidia.com/deploy/cuda-compatibility/",
    needs=("gpu-framework",),
    timeout=120,
)
def host_driver(ctx: Context) -> Outcome:
    declared = ctx.adapter.versions()
    facts = ctx.facts
    kernel, user = facts.get("kernel_driver"), facts.get("driver")
    row = ctx.card() or {}
    compat = _compat_libcuda()
    measured: dict[str, Any] = {
        "driver": user or kernel,
        "kernel_driver": kernel,
        "driver_cuda": facts.get("driver_cuda"),
        "wheel_cuda": declared.get("wheel_cuda"),
        "libcuda": compat[0],
        "cuda_compat_loaded": compat[1],
    }
    if kernel and user and kernel != user:
        return failed(
            f"the kernel module is {kernel}, the driver's libraries are {user}",
            "the driver was upgraded under a running machine: reboot the host; then nvidia-ctk cdi generate",
            measured,
        )
    if declared.get("gpu_build") is False:
        return failed(
            f"{ctx.framework} is a CPU-only build on a machine with a GPU",
            "install the CUDA build: see gpuimg resolve",
            measured,
        )
    path = driver_path(
        declared.get("wheel_cuda"),
        measured["driver"],
        measured["driver_cuda"],
        driver_tables(),
        forward=compat[1],
        data_centre=row.get("data_centre"),
    )
    measured["path"] = path.path
    if path.path == "fail":
        return failed(path.why, path.hint, measured, {"path": "native, minor or forward"})
    if path.path == "unknown":
        return skipped(path.why, measured)
    return passed(measured, {"path": "native, minor or forward"}, path.why if path.path != "native" else None)


def _compat_libcuda() -> tuple[str | None, bool]:
    """Path of the libcuda that the loader gives us, and whether it is one of cuda-compat."""
    import ctypes

    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None, False
    for line in read("/proc/self/maps", 8 << 20).splitlines():
        if "libcuda.so" in line:
            path = line.split(None, 5)[5]
            return path, "/compat/" in path or "cuda-compat" in path
    return None, False


@check(
    "host.require",
    title="NVIDIA_REQUIRE is met",
    proves="the image's own demand on driver and card holds here, also where nobody evaluates it (CDI does not)",
    how="every NVIDIA_REQUIRE_* variable evaluated as the container toolkit's legacy mode does: spaces are OR, commas "
    "AND; brand, driver, cuda and arch from NVML",
    threshold="at least one alternative holds for every visible GPU",
    source="nvidia-container-toolkit v1.20.0 evaluates it in legacy and csv modes only",
    needs=("gpu",),
    light=True,
)
def host_require(ctx: Context) -> Outcome:
    clauses = {k: v for k, v in os.environ.items() if k.startswith("NVIDIA_REQUIRE_") and v.strip()}
    measured: dict[str, Any] = {
        "disabled": os.environ.get("NVIDIA_DISABLE_REQUIRE"),
        "variables": sorted(clauses),
    }
    if not clauses:
        return not_applicable("the image sets no NVIDIA_REQUIRE_* variable", measured)
    unknown = []
    for gpu in ctx.gpus:
        facts = {
            "cuda": ctx.facts.get("driver_cuda"),
            "driver": ctx.facts.get("driver"),
            "arch": gpu.get("compute_capability"),
            "brand": BRANDS.get(gpu.get("brand", -1)),
        }
        for name, text in clauses.items():
            answer, held = require(text, facts)
            measured.setdefault("held", {})[f"{name}, GPU {gpu.get('index', 0)}"] = held
            if answer is False:
                return failed(
                    f"{name} does not hold: wanted {_brief(text)}; here cuda {facts['cuda']}, driver "
                    f"{facts['driver']}, arch {facts['arch']}, brand {facts['brand']}",
                    "a legacy container runtime refuses this image here (CDI starts it): take an image for "
                    "an older CUDA, or a newer driver; NVIDIA_DISABLE_REQUIRE=1 only hides it",
                    measured,
                )
            if answer is None:
                unknown.append(name)
    if unknown:
        return skipped(f"{', '.join(unknown)} cannot be evaluated: facts are missing", measured)
    return passed(measured)


def _brief(text: str) -> str:
    return text if len(text) < 100 else text[:97] + "…"


@check(
    "host.cdi",
    title="CDI specification is fresh",
    proves="the container device interface's file describes the driver that is loaded now",
    how="read /etc/cdi and /var/run/cdi: version suffix of libcuda in the specification against the kernel module, "
    "every device node and library it names against the disk",
    threshold="same version, nothing missing, at least one GPU node",
    source="podman#26233, podman#23935, kaito#2326, nvidia-container-toolkit#146",
    light=True,
)
def host_cdi(ctx: Context) -> Outcome:
    files = [f for folder in ("/etc/cdi", "/var/run/cdi") for f in glob.glob(folder + "/*") if os.path.isfile(f)]
    specs = [f for f in files if "nvidia.com/" in read(f)]
    if not specs:
        return not_applicable("no CDI specification is visible from here (it lies on the host, outside a container)")
    problems: list[judge_host.Problem] = []
    measured: dict[str, Any] = {"files": specs, "kernel_driver": ctx.facts.get("kernel_driver")}
    for file in specs:
        text = read(file, 4 << 20)
        existing = {path: os.path.exists(path) for path in judge_host.cdi_paths(text)}
        problems += judge_host.cdi_problems(text, ctx.facts.get("kernel_driver") or ctx.facts.get("driver"), existing)
    if problems:
        return failed(*_joined(problems), measured)
    return passed(measured)


@check(
    "host.inject",
    title="How the GPU got in",
    proves="which way the driver's files reached this container, so that the certificate can say it",
    how="NVIDIA_VISIBLE_DEVICES, NVIDIA_CTK_LIBCUDA_DIR, /proc/self/mountinfo, device nodes",
    threshold="a GPU that NVML lists has its device node, readable and writable; nothing else can fail it",
    source="nvidia-container-toolkit v1.20.0, pkg/nvcdi",
    needs=("gpu",),
    light=True,
)
def host_inject(ctx: Context) -> Outcome:
    mode = judge_host.injection_mode(dict(os.environ), read("/proc/self/mountinfo"), in_container())
    nodes = sorted(glob.glob("/dev/nvidia*") + glob.glob("/dev/dxg"))
    usable = [n for n in nodes if os.path.isdir(n) or os.access(n, os.R_OK | os.W_OK)]
    measured = {
        "mode": mode,
        "nodes": nodes,
        "capabilities": os.environ.get("NVIDIA_DRIVER_CAPABILITIES"),
        "visible": os.environ.get("NVIDIA_VISIBLE_DEVICES"),
    }
    if len(usable) < len(nodes):
        shut = sorted(set(nodes) - set(usable))
        return failed(
            f"no right to use {', '.join(shut)}",
            "run the container as a user of the nodes' group, or with --group-add; rootless podman wants "
            "--security-opt=label=disable",
            measured,
        )
    if not nodes:
        return failed(
            "NVML lists a GPU and /dev holds no node for it",
            "libraries without device nodes: an empty CDI device; nvidia-ctk cdi generate on the host",
            measured,
        )
    return passed(measured)


@check(
    "host.sandbox",
    title="Kind of container and machine",
    proves="what stands between this program and the hardware, recorded for the certificate",
    how="/proc/version, control group names, environment of process 1, DMI, CPU flags",
    threshold="recorded; fails for kinds that the profile refuses (floor 'refuse', e.g. [\"gvisor\"])",
    source="measured on gVisor and Firecracker machines",
    light=True,
)
def host_sandbox(ctx: Context) -> Outcome:
    texts = _sandbox_texts()
    measured = {
        **judge_host.sandbox_kind(texts),
        "kernel": texts["release"],
        "vendor": texts["vendor"] or None,
        "product": texts["product"] or None,
        "seccomp": _status("Seccomp"),
        "capabilities": _status("CapEff"),
        "no_new_privileges": _status("NoNewPrivs"),
        "uid": os.getuid(),
    }
    refused = [kind for kind in ctx.floor("refuse", []) if kind in (measured["container"], measured["machine"])]
    if refused:
        return failed(f"this is {', '.join(refused)}, which the profile refuses", "another kind of server", measured)
    return passed(measured)


def _status(key: str) -> str | None:
    for line in read("/proc/self/status").splitlines():
        if line.startswith(key + ":"):
            return line.split(":", 1)[1].strip()
    return None


def cgroup_limits() -> dict[str, Any]:
    """CPU, memory and process limits of our control group (v2 and v1); None where there is none."""
    limits: dict[str, Any] = {"memory_bytes": None, "pids": None, "cpu_quota": None}
    quota = read("/sys/fs/cgroup/cpu.max").split()
    if len(quota) == 2 and quota[0].isdigit():
        limits["cpu_quota"] = int(quota[0]) / int(quota[1])
    else:
        old, period = read("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"), read("/sys/fs/cgroup/cpu/cpu.cfs_period_us")
        if old.strip().isdigit() and period.strip().isdigit():
            limits["cpu_quota"] = int(old) / int(period)
    for key, paths in (
        ("memory_bytes", ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")),
        ("pids", ("/sys/fs/cgroup/pids.max", "/sys/fs/cgroup/pids/pids.max")),
    ):
        for path in paths:
            text = read(path).strip()
            if text.isdigit() and int(text) < 1 << 60:
                limits[key] = int(text)
                break
    return limits


@check(
    "host.limits",
    title="Limits of the container",
    proves="CPUs, memory, processes, open files and locked memory are enough for the work",
    how="control group files, sched_getaffinity, getrlimit",
    threshold="≥ 1 CPU, ≥ 2 GiB (profiles raise it), ≥ 256 processes, ≥ 1024 files; small memlock is noted",
    source="NCCL documentation (memlock); Docker's defaults",
    light=True,
)
def host_limits(ctx: Context) -> Outcome:
    import resource

    group = cgroup_limits()
    affinity = len(os.sched_getaffinity(0))
    memlock = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    total = 0
    for line in read("/proc/meminfo").splitlines():
        if line.startswith("MemTotal:"):
            total = int(line.split()[1]) << 10
    limits = {
        "cpus": min(affinity, group["cpu_quota"] or affinity),
        "memory_bytes": min(x for x in (group["memory_bytes"], total or None) if x) if total else group["memory_bytes"],
        "pids": group["pids"],
        "memlock_bytes": None if memlock == resource.RLIM_INFINITY else memlock,
        "open_files": None if files == resource.RLIM_INFINITY else files,
    }
    problems, notes = judge_host.limit_problems(limits, ctx.floors.get("host.limits", {}))
    measured = {
        **limits,
        "memory_gib": round((limits["memory_bytes"] or 0) / GIB, 1),
        "machine_memory_gib": total >> 30,
    }
    if problems:
        return failed(*_joined(problems), measured)
    return passed(measured, reason="; ".join(notes) or None)


@check(
    "host.shm",
    title="/dev/shm is large enough and writable",
    proves="data loader workers and NCCL can pass data through shared memory",
    how="statvfs, then a file of up to 64 MiB is written, mapped, touched page by page and read back",
    threshold="≥ 1 GiB (profiles change it), writable; Docker's default is 64 MiB",
    source="pytorch#5040, pytorch#1355: 'Bus error' or a deadlock",
    light=True,
)
def host_shm(ctx: Context) -> Outcome:
    path = str(ctx.options.get("shm_path") or "/dev/shm")
    floor = int(float(ctx.floor("min_gib", 1.0)) * GIB)
    measured: dict[str, Any] = {"path": path}
    try:
        facts = os.statvfs(path)
    except OSError as error:
        return failed(f"{path}: {error.strerror}", "mount it: docker run --shm-size=8g", measured)
    size, free = facts.f_frsize * facts.f_blocks, facts.f_frsize * facts.f_bavail
    measured.update(size_mib=size // MIB, free_mib=free // MIB)
    writable, reason = True, ""
    want = min(64 * MIB, max(MIB, free // 2))
    name = os.path.join(path, f"gpuimg-{os.getpid()}")
    try:
        with open(name, "wb+") as file:
            os.posix_fallocate(file.fileno(), 0, want)  # a full file system says so here, and not as a bus error
            with mmap.mmap(file.fileno(), want) as view:
                for offset in range(0, want, 4096):
                    view[offset] = 1 + offset // 4096 % 250
                bad = sum(1 for offset in range(0, want, 4096) if view[offset] != 1 + offset // 4096 % 250)
                writable, reason = bad == 0, f"{bad} pages came back changed"
    except OSError as error:
        writable, reason = False, str(error.strerror or error)
    finally:
        if os.path.exists(name):
            os.unlink(name)
    measured["written_mib"] = want // MIB if writable else 0
    problem = judge_host.shm_problem(size, free, writable, floor, reason)
    if problem is not None:
        return failed(problem.what, problem.fix, measured, {"min_mib": floor // MIB})
    return passed(measured, {"min_mib": floor // MIB})


SAMPLE = "图像 🚀 ünïcode"

_LOCALE_PROGRAM = """
import sys, os, json
text = sys.stdin.buffer.read().decode("utf-8")
out = {}
try:
    print(text); sys.stdout.flush(); out["stdio"] = True
except UnicodeError: out["stdio"] = False
try:
    open(text, "w").close(); out["filename"] = text in os.listdir("."); os.unlink(text)
except UnicodeError: out["filename"] = False
out["argv"] = sys.argv[1] == text
sys.stderr.write(json.dumps(out))
"""

_CODESET_PROGRAM = (
    "import locale; locale.setlocale(locale.LC_ALL, ''); "
    "print(locale.nl_langinfo(locale.CODESET), locale.setlocale(locale.LC_CTYPE))"
)


@check(
    "host.locale",
    title="Text is UTF-8",
    proves="Chinese text and emoji survive standard output, file names and arguments in the image's own environment",
    how="a fresh Python without -E prints, creates a file of and receives such a text; the C library's codeset is read "
    "with Python's own repairs switched off, as other programs see it",
    threshold="all three survive and the codeset is UTF-8",
    source="docker-library/python#13; PEP 538, PEP 540",
    light=True,
    timeout=30,
)
def host_locale(ctx: Context) -> Outcome:
    import json

    python = sys.executable or "python3"
    measured: dict[str, Any] = {k: os.environ.get(k) for k in ("LANG", "LC_ALL", "LC_CTYPE", "PYTHONIOENCODING")}
    plain = dict(os.environ)
    if ctx.facts.get("lc_ctype_coerced"):
        plain.pop("LC_CTYPE", None)
        measured["LC_CTYPE"] = None
    env = {**plain, "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    try:
        answer = subprocess.run(
            [python, "-s", "-c", _CODESET_PROGRAM], env=env, capture_output=True, timeout=10, check=True
        )
        words = answer.stdout.decode("ascii", "replace").split()
        measured["codeset"], measured["locale"] = words[0], words[-1]
    except (subprocess.SubprocessError, OSError, IndexError) as error:
        detail = getattr(error, "stderr", b"") or b""
        if b"unsupported locale setting" in detail:
            return failed(
                f"the locale {os.environ.get('LC_ALL') or os.environ.get('LANG')!r} is not installed in the image",
                "set LANG=C.UTF-8, which needs no package, or install the locales package",
                measured,
            )
        return skipped(f"the locale cannot be read: {error}", measured)
    try:
        trip = subprocess.run(
            [python, "-s", "-c", _LOCALE_PROGRAM, SAMPLE.encode("utf-8")],
            input=SAMPLE.encode("utf-8"),
            capture_output=True,
            cwd=str(ctx.workdir),
            env=plain,
            timeout=10,
            check=False,
        )
        facts = json.loads(trip.stderr.decode("ascii", "replace").splitlines()[-1])
        facts["stdio"] = facts.get("stdio") and SAMPLE.encode("utf-8") in trip.stdout
        measured.update(facts)
    except (subprocess.SubprocessError, OSError, ValueError, IndexError) as error:
        measured.update(stdio=False, error=str(error)[:200])
    problem = judge_host.locale_problem(measured)
    if problem is not None:
        return failed(problem.what, problem.fix, measured, {"codeset": "UTF-8"})
    return passed(measured, {"codeset": "UTF-8"})


EARLIEST = 1767225600.0
"""2026-01-01T00:00:00Z: the suite is younger than that, so no right clock is older."""


@check(
    "host.clock",
    title="Clock is sane",
    proves="time runs, forwards, at the right rate, and is not years off (certificates and time-outs hang on it)",
    how="wall clock against the monotonic clock over 0.3 s, date against this suite's, a new file's time against it",
    threshold="after 2026-01-01; rates within 20 %; file times within 5 s",
    source="TLS certificates and collectives with time-outs fail on machines resumed from a snapshot",
    light=True,
)
def host_clock(ctx: Context) -> Outcome:
    wall, mono = time.time(), time.monotonic()
    time.sleep(0.3)
    wall, mono = time.time() - wall, time.monotonic() - mono
    file = ctx.workdir / "clock"
    file.write_text("x", encoding="ascii")
    drift = abs(file.stat().st_mtime - time.time())
    now = time.time()
    measured = {"utc": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now)), "rate": round(wall / mono, 4)}
    measured["file_time_off_s"] = round(drift, 3)
    problem = clock_problem(now, wall / mono, drift)
    if problem is not None:
        return failed(
            problem, "set the host's clock (chrony, systemd-timesyncd); containers take it from there", measured
        )
    return passed(measured)


def clock_problem(now: float, rate: float, file_drift: float) -> str | None:
    """Judge a clock: seconds since the epoch, wall over monotonic rate, seconds a new file's time is off."""
    if now < EARLIEST:
        return f"the clock says {time.strftime('%Y-%m-%d', time.gmtime(now))}, before this program was written"
    if now > EARLIEST + 20 * 365 * 86400:
        return f"the clock says {time.strftime('%Y-%m-%d', time.gmtime(now))}, far in the future"
    if not 0.8 < rate < 1.2:
        return f"the wall clock runs at {rate:.2f} of the monotonic clock's rate"
    if file_drift > 5:
        return f"new files are dated {file_drift:.0f} s off"
    return None


@check(
    "host.disk",
    title="Disk space and speed",
    proves="there is room for models and checkpoints, and writing them does not take for ever",
    how="statvfs of the work folder; up to 256 MiB (at most 3 s) written, synced, dropped from the cache where that is "
    "allowed, and read back",
    threshold="≥ 2 GiB free, ≥ 50 MB/s written (profiles change both)",
    source="our own: below it a 10 GB checkpoint takes over three minutes",
    light=True,
    retry=True,
    timeout=60,
)
def host_disk(ctx: Context) -> Outcome:
    folder = Path(str(ctx.options.get("disk_path") or ctx.workdir))
    facts = os.statvfs(str(folder))
    free = facts.f_frsize * facts.f_bavail
    measured: dict[str, Any] = {"free_gib": round(free / GIB, 2), "folder": str(folder.parent)}
    floor, speed_floor = float(ctx.floor("min_free_gib", 2.0)), float(ctx.floor("min_write_mb_s", 50.0))
    expected = {"free_gib_at_least": floor, "write_mb_s_at_least": speed_floor}
    if free < floor * GIB:
        return failed(
            f"{free / GIB:.1f} GiB free, the profile wants {floor:g}", "a larger disk, or clear it", measured, expected
        )
    file, block = folder / "disk", os.urandom(4 * MIB)
    started, written = time.monotonic(), 0
    with open(file, "wb") as out:
        while written < 256 * MIB and time.monotonic() - started < 3.0:
            out.write(block)
            written += len(block)
        out.flush()
        os.fsync(out.fileno())
        measured["write_mb_s"] = round(written / (time.monotonic() - started) / 1e6, 1)
        os.posix_fadvise(out.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    started, count, same = time.monotonic(), 0, True
    with open(file, "rb") as back:
        while True:
            piece = back.read(len(block))
            if not piece:
                break
            same, count = same and piece == block[: len(piece)], count + len(piece)
    measured["read_mb_s"] = round(count / max(1e-6, time.monotonic() - started) / 1e6, 1)
    measured["written_mib"] = written // MIB
    file.unlink()
    if not same or count != written:
        return failed("what was read is not what was written", "the disk is faulty: another server", measured, expected)
    if measured["write_mb_s"] < speed_floor:
        return failed(
            f"{measured['write_mb_s']:.0f} MB/s written and synced, the profile wants {speed_floor:g}",
            "a network disk or a shared one: put data on a local SSD, or another server",
            measured,
            expected,
        )
    return passed(measured, expected)
