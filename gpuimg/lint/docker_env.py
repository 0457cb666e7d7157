"""Environment variables of an image: what the container runtime reads, what CUDA reads, the locale."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from gpuimg.knowledge import Knowledge
from gpuimg.lint.docker_context import DockerContext, StageView, package_set
from gpuimg.lint.facts import FRAMEWORKS_WITH_CUDA, cuda_of, finding
from gpuimg.nouns import LintFinding
from gpuimg.project.dockerfile import env_pairs

RUNTIME_ENV = "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html"
CUDA_ENV = "https://docs.nvidia.com/cuda/cuda-c-programming-guide/#cuda-environment-variables"
CAPABILITIES = {"compute", "utility", "graphics", "video", "display", "compat32", "ngx", "all"}


def variable(key: str, value: str, where: tuple[str, int | None]) -> Iterator[LintFinding]:
    """One variable, wherever it is set (Dockerfile, compose)."""
    plain = value.strip().strip("\"'")
    if "$" in plain:
        return
    if key == "CUDA_VISIBLE_DEVICES":
        if plain.lower() in {"all", "none", "void", "true", "gpu", "auto"}:
            yield finding(
                "cuda-visible-devices", "error", where,
                f"CUDA_VISIBLE_DEVICES={plain}: CUDA knows indexes and UUIDs only, so it sees no device at all ('all' belongs to NVIDIA_VISIBLE_DEVICES)",
                "NVIDIA_VISIBLE_DEVICES=all for the container; leave CUDA_VISIBLE_DEVICES out", CUDA_ENV,
            )  # fmt: skip
        elif plain in {"", "-1"}:
            yield finding(
                "cuda-visible-devices",
                "warning",
                where,
                f"CUDA_VISIBLE_DEVICES={plain!r} hides every GPU",
                "leave it out",
                CUDA_ENV,
            )
        elif re.search(r"\d", plain) and plain != "0" and where[0].lower().endswith("dockerfile"):
            yield finding(
                "cuda-visible-devices",
                "warning",
                where,
                f"CUDA_VISIBLE_DEVICES={plain} is baked into the image: a host with other cards starts without a GPU",
                "set it at run time",
                CUDA_ENV,
            )
    if key == "NVIDIA_VISIBLE_DEVICES" and plain.lower() in {"none", "void", ""}:
        yield finding(
            "nvidia-visible-devices", "warning", where, f"NVIDIA_VISIBLE_DEVICES={plain or 'empty'}: the runtime mounts no GPU", "NVIDIA_VISIBLE_DEVICES=all", RUNTIME_ENV,
        )  # fmt: skip
    if key == "NVIDIA_DRIVER_CAPABILITIES":
        words = {w.strip() for w in re.split(r"[,\s]+", plain) if w.strip()}
        unknown = words - CAPABILITIES
        if unknown:
            yield finding(
                "driver-capabilities", "error", where, f"NVIDIA_DRIVER_CAPABILITIES={plain}: unknown {', '.join(sorted(unknown))}; the container does not start",
                "compute,utility (and video, graphics where needed)", RUNTIME_ENV,
            )  # fmt: skip
        elif words and "all" not in words and "compute" not in words:
            yield finding(
                "driver-capabilities", "error" if words <= {"utility"} else "warning", where, f"NVIDIA_DRIVER_CAPABILITIES={plain} leaves out compute: libcuda is not mounted, CUDA finds no driver",
                "compute,utility", RUNTIME_ENV,
            )  # fmt: skip
        elif words and "all" not in words and "utility" not in words:
            yield finding(
                "driver-capabilities",
                "note",
                where,
                f"NVIDIA_DRIVER_CAPABILITIES={plain} leaves out utility: no nvidia-smi and no NVML in the container",
                "compute,utility",
                RUNTIME_ENV,
            )
    if key == "NVIDIA_DISABLE_REQUIRE" or key == "NVIDIA_DISABLE_REQUIRES":
        yield finding(
            "require-disabled",
            "warning",
            where,
            f"{key} turns off the check of the driver: a driver that is too old fails later, inside CUDA",
            "leave it out",
            RUNTIME_ENV,
        )


def variables(context: DockerContext, kb: Knowledge) -> Iterator[LintFinding]:
    """Every ENV of the stages that are used."""
    for view in context.views:
        for step in view.stage.steps:
            made = step.instruction
            if made.keyword == "ENV":
                for key, value in env_pairs(made.value):
                    yield from variable(key, value, (context.file, made.line))
                    if (
                        re.search(r"(TOKEN|SECRET|PASSWORD|API_KEY|ACCESS_KEY)$", key)
                        and len(value) > 7
                        and "$" not in value
                    ):
                        yield finding(
                            "secret",
                            "warning",
                            (context.file, made.line),
                            f"{key} is stored in the image for everybody who pulls it",
                            "pass it at run time, or use RUN --mount=type=secret",
                            "https://docs.docker.com/build/building/secrets/",
                        )
            if made.keyword == "ARG" and re.search(r"(TOKEN|SECRET|PASSWORD|API_KEY)\s*=\s*\S{8,}", made.value):
                yield finding(
                    "secret",
                    "warning",
                    (context.file, made.line),
                    "a secret as ARG stays in the image's history",
                    "use RUN --mount=type=secret",
                    "https://docs.docker.com/build/building/secrets/",
                )


def runtime_variables(context: DockerContext, kb: Knowledge) -> Iterator[LintFinding]:
    """On a base that is no CUDA image the runtime needs to be told that GPUs are wanted (where it is the default runtime)."""
    view = context.final
    if view.base.facts.kind != "distribution":
        return
    packages = package_set(view, context, kb)
    gpu = [
        i for i in packages.items if i.req.name in FRAMEWORKS_WITH_CUDA and cuda_of(kb, i, packages.machine) != "cpu"
    ]
    if not gpu or "NVIDIA_VISIBLE_DEVICES" in view.env:
        return
    yield finding(
        "nvidia-visible-devices", "note", (context.file, context.dockerfile.root(view.stage).line),
        f"{view.base.reference} sets no NVIDIA_VISIBLE_DEVICES and NVIDIA_DRIVER_CAPABILITIES: --gpus all works, but '--runtime=nvidia' alone mounts no GPU",
        "ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility", RUNTIME_ENV,
    )  # fmt: skip


def locale(context: DockerContext, kb: Knowledge) -> Iterator[LintFinding]:
    """No UTF-8 locale in a base without one: ASCII for old Pythons and for child programs."""
    view = context.final
    if not view.base.plain or view.base.musl:
        return
    names = {"LANG", "LC_ALL", "LC_CTYPE", "PYTHONUTF8", "PYTHONIOENCODING"}
    if names & set(view.env):
        return
    if any(
        re.search(r"\b(locale-gen|update-locale|LANG=|LC_ALL=)", r.command.text)
        or names & {k for k, _ in r.command.assigned}
        for r in view.runs
    ):
        return
    if not _uses_python(view, context):
        return
    old = view.base.os is not None and view.base.os.python in {"3.5", "3.6"}
    yield finding(
        "locale", "warning" if old else "note", (context.file, context.dockerfile.root(view.stage).line),
        "no LANG is set: the POSIX locale means ASCII for old Pythons and for child programs ('ascii' codec can't encode)",
        "ENV LANG=C.UTF-8", "https://peps.python.org/pep-0538/",
    )  # fmt: skip


def _uses_python(view: StageView, context: DockerContext) -> bool:
    words: Iterable[str] = (c.text for s in view.stage.steps for c in s.commands())
    return any("python" in w or "pip" in w for w in words)
