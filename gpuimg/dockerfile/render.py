"""Plan and locked wheels → Dockerfile, requirement files, bake file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jinja2

from gpuimg import __version__
from gpuimg.nouns import Cell, Plan

PREFIX = "/opt/venv"
UID = 10001
"""Of the image's own user; above the range distributions give to people."""
UV_VERSION = "0.9.0"
"""uv that installs in the BuildKit build; what the layers hold does not depend on it (a test compares)."""


@dataclass(frozen=True)
class Layer:
    """The wheels of one layer: (name, version, sha256) each, and a title for people."""

    title: str
    wheels: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True)
class Rendered:
    """Files of one cell, by path relative to the cell's folder."""

    cell: str
    files: Mapping[str, str]

    @property
    def dockerfile(self) -> str:
        return self.files["Dockerfile"]


def image_tag(cell: Cell) -> str:
    """Tag of a cell's image: its id without the framework's name, '2.6.0-cu124-py311-debian12'."""
    return cell.id.removeprefix(cell.framework)[:120]


def render_cell(plan: Plan, layers: Sequence[Layer], *, extra_indexes: Sequence[str] = ()) -> Rendered:
    """Everything ``docker buildx build`` needs for one cell. The same input gives the same bytes."""
    groups = []
    files: dict[str, str] = {}
    for number, layer in enumerate(layers, 1):
        first = re.sub(r"[^a-z0-9.-]", "-", layer.wheels[0][0])
        label = first if len(layer.wheels) == 1 else "small"
        file = f"{number:02d}-{label}.txt"
        files[f"layers/{file}"] = "".join(
            f"{name}=={version} --hash=sha256:{sha256}\n" for name, version, sha256 in layer.wheels
        )
        groups.append({"stage": f"layer-{number:02d}-{label}".replace(".", "-"), "file": file, "title": layer.title})
    cell = plan.cell
    text = _template().render(
        cell=cell,
        plan=plan,
        tag=image_tag(cell),
        public_base=public_base(plan),
        apt_packages=_apt_packages(cell.os, plan.python),
        prefix=PREFIX,
        uid=UID,
        uv_version=UV_VERSION,
        env=list(environment(plan).items()),
        groups=groups,
        labels=list(labels(plan).items()),
        extra_indexes=list(extra_indexes),
    )
    files["Dockerfile"] = text.rstrip() + "\n"
    return Rendered(cell.id, dict(sorted(files.items())))


def public_base(plan: Plan) -> str:
    """The base as anyone with Docker Hub can pull it."""
    if plan.base is not None and plan.base.origin in ("registry", "mirror") and "@" not in plan.base.reference:
        return plan.base.reference
    os = plan.cell.os
    for prefix in ("debian", "ubuntu"):
        if os.startswith(prefix):
            version = os.removeprefix(prefix)
            return f"debian:{version}-slim" if prefix == "debian" else f"ubuntu:{version}"
    return os


def environment(plan: Plan) -> dict[str, str]:
    """NVIDIA's environment contract for GPU images; nothing for CPU ones.

    The driver gate is the minor-version floor of the wheel's CUDA major (cuda>=12.0 for any 12.x), since the wheels
    bring their own CUDA: https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html
    """
    if plan.wheel_cuda is None:
        return {}
    major = plan.wheel_cuda.split(".")[0]
    return {
        "NVIDIA_VISIBLE_DEVICES": "all",
        "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
        "NVIDIA_REQUIRE_CUDA": f"cuda>={major}.0",
        "CUDA_VERSION": plan.wheel_cuda,
    }


def labels(plan: Plan) -> dict[str, str]:
    """OCI labels and our own; what is measured later is not among them."""
    cell = plan.cell
    found = {
        "org.opencontainers.image.title": f"{cell.framework} {plan.version}",
        "org.opencontainers.image.description": f"{cell.framework} {plan.version}, "
        + (f"wheel_cuda {plan.wheel_cuda}" if plan.wheel_cuda else "CPU")
        + f", Python {plan.python}",
        "org.opencontainers.image.version": plan.version,
        "org.opencontainers.image.base.name": public_base(plan),
        "io.gpuimg.version": __version__,
        "io.gpuimg.cell": cell.id,
        "io.gpuimg.framework": cell.framework,
        "io.gpuimg.device": cell.device,
        "io.gpuimg.python": plan.python,
        "io.gpuimg.wheel-cuda": plan.wheel_cuda or "",
        "io.gpuimg.cudnn": plan.cudnn or "",
        "io.gpuimg.nccl": plan.nccl or "",
        "io.gpuimg.sm": " ".join(plan.sm),
        "io.gpuimg.driver-min": plan.min_driver or "",
    }
    return {name: value for name, value in found.items() if value}


def bake_file(cells: Iterable[tuple[Plan, Rendered]], registry: str = "gpuimg") -> str:
    """One docker-bake.json for all cells: ``docker buildx bake`` in the folder builds them."""
    targets: dict[str, Any] = {}
    for plan, rendered in cells:
        targets[rendered.cell.replace(".", "_")] = {
            "context": rendered.cell,
            "tags": [f"{registry}/{plan.cell.framework}:{image_tag(plan.cell)}"],
            "platforms": [f"linux/{'arm64' if plan.cell.machine == 'aarch64' else 'amd64'}"],
        }
    document = {"group": {"default": {"targets": sorted(targets)}}, "target": dict(sorted(targets.items()))}
    return json.dumps(document, indent=2) + "\n"


def _apt_packages(os: str, python: str) -> list[str]:
    return [f"python{python}", f"python{python}-venv"]


@lru_cache(maxsize=1)
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("gpuimg.dockerfile"),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=False,
    )
    return environment.get_template("Dockerfile.j2")
