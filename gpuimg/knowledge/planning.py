"""Cell → plan: which build of the framework it means, on which base, and whether that can be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpuimg.errors import nearest
from gpuimg.knowledge.base import Knowledge
from gpuimg.knowledge.tables import Build
from gpuimg.nouns import BaseImage, Cell, Finding, FitVerdict, Plan

_CPU_NAMES = {"tensorflow": "tensorflow-cpu"}
_GPU_NAMES = {"onnxruntime": "onnxruntime-gpu", "paddlepaddle": "paddlepaddle-gpu"}


def plan_cell(cell: Cell, *, targets: Sequence[Any] = (), knowledge: Knowledge) -> Plan:
    """The plan of one cell; an impossible cell gets the verdict 'does-not-fit' with what could be instead."""
    name = (_CPU_NAMES if cell.device == "cpu" else _GPU_NAMES).get(cell.framework, cell.framework)
    builds = [b for b in knowledge.builds(name, machine=cell.machine) if b.device in (cell.device, None)]
    return _plan(cell, name, builds)


def _plan(cell: Cell, name: str, builds: list[Build]) -> Plan:
    exact = [b for b in builds if b.version == cell.version]
    if cell.device == "cuda" and cell.cuda not in (None, "auto"):
        exact = [b for b in exact if b.wheel_cuda == cell.cuda]
    on_pypi = [b for b in exact if b.index == "pypi"]
    build = (on_pypi or exact or [None])[0]
    findings: list[Finding] = []
    verdict: FitVerdict = "fits"
    if build is None and builds:
        near = nearest(cell.version, sorted({b.version for b in builds}))
        findings.append(
            Finding("wheel", "no", f"no {name} {cell.version} for {cell.device} {cell.cuda or ''}".strip(),
                    "knowledge base", fix=f"nearest known: {near}" if near else None)
        )  # fmt: skip
        verdict = "does-not-fit"
    if build is not None and build.pythons and cell.python not in build.pythons:
        findings.append(
            Finding("python", "no", f"{name} {cell.version} has wheels for Python {', '.join(build.pythons)}, "
                    f"not {cell.python}", build.source)
        )  # fmt: skip
        verdict = "does-not-fit"
    return Plan(
        cell=cell,
        verdict=verdict,
        findings=tuple(findings),
        version=cell.version,
        wheel_cuda=build.wheel_cuda if build and cell.device == "cuda" else None,
        cudnn=build.cudnn if build and cell.device == "cuda" else None,
        nccl=build.nccl if build and cell.device == "cuda" else None,
        python=cell.python,
        base=None if cell.os.startswith("debian") else BaseImage(cell.os, "registry", "distribution", None, cell.os),
        index_url=build.index_url if build else None,
        requirements=(f"{name}=={cell.version}", *cell.packages),
        sm=build.sm or () if build and cell.device == "cuda" else (),
        estimated_mib=build.size_mib if build else None,
    )
