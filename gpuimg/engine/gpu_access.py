"""How a container gets at the GPUs of an engine, found out by looking: CDI, the nvidia runtime, or ``--gpus``.

CDI comes first: it works without a special runtime and is what NVIDIA's toolkit itself uses by default since 1.18.
"""

from __future__ import annotations

import glob
import json
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from gpuimg.engine.client import is_local
from gpuimg.errors import BadInput, CannotTell

if TYPE_CHECKING:
    import docker

Kind = Literal["cdi", "nvidia-runtime", "gpus", "none"]
KINDS: tuple[Kind, ...] = ("cdi", "nvidia-runtime", "gpus", "none")
CDI_CLASS = "nvidia.com/gpu"


@dataclass(frozen=True)
class GpuAccess:
    """The way in that was chosen, for which devices, and why the others were not."""

    kind: Kind
    devices: tuple[str, ...]
    """Index, UUID or 'all'; empty for 'none'."""
    reason: str
    rejected: tuple[tuple[str, str], ...] = ()
    """(kind, why not)."""
    details: dict[str, Any] = field(default_factory=dict)

    def create_options(self) -> dict[str, Any]:
        """Keyword arguments for ``docker.containers.create``."""
        from docker.types import DeviceRequest

        if self.kind == "cdi":
            names = [f"{CDI_CLASS}={device}" for device in self.devices]
            return {"device_requests": [DeviceRequest(driver="cdi", device_ids=names)]}
        if self.kind == "nvidia-runtime":
            return {"runtime": "nvidia", "environment": {"NVIDIA_VISIBLE_DEVICES": ",".join(self.devices)}}
        if self.kind == "gpus":
            every = self.devices == ("all",)
            wanted: dict[str, Any] = {"count": -1} if every else {"device_ids": list(self.devices)}
            return {"device_requests": [DeviceRequest(capabilities=[["gpu"]], **wanted)]}
        # The image's own NVIDIA_VISIBLE_DEVICES=all must not pull GPUs in where nvidia is the default runtime.
        return {"environment": {"NVIDIA_VISIBLE_DEVICES": "void"}}

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "devices": list(self.devices),
            "reason": self.reason,
            "rejected": [{"kind": k, "reason": r} for k, r in self.rejected],
            **self.details,
        }


def find_gpu_access(client: docker.DockerClient, gpus: str = "auto") -> GpuAccess:
    """Choose the way in.

    ``gpus``: 'auto' (all when there are any, else none), 'all', 'none', or indices/UUIDs separated by commas.
    ``GPUIMG_GPU_ACCESS`` (cdi, nvidia-runtime, gpus, none) overrides the choice.

    Raises:
        CannotTell: GPUs were asked for by name and the engine reaches none (exit 3).
        BadInput: the override is not one of the four.
    """
    devices = parse_gpus(gpus)
    if gpus == "none":
        return GpuAccess("none", (), "asked for none")
    info: dict[str, Any] = client.info()
    local = is_local(client)
    facts = look(info, local=local)
    forced = os.environ.get("GPUIMG_GPU_ACCESS")
    if forced is not None and forced not in KINDS:
        raise BadInput(f"GPUIMG_GPU_ACCESS={forced!r}; allowed: {', '.join(KINDS)}")
    return choose(facts, devices, forced=forced, asked=gpus != "auto")


def parse_gpus(gpus: str) -> tuple[str, ...]:
    """'0,1' → ('0', '1'); 'auto' and 'all' → ('all',).

    Raises:
        BadInput: empty, or parts that are neither an index nor a UUID.
    """
    if gpus in ("auto", "all", "none"):
        return ("all",) if gpus != "none" else ()
    parts = tuple(p.strip() for p in gpus.split(","))
    if not all(p.isdigit() or p.startswith(("GPU-", "MIG-")) for p in parts):
        raise BadInput(f"--gpus {gpus!r}; allowed: auto, all, none, indices (0,1) or UUIDs (GPU-…, MIG-…)")
    return parts


def look(info: dict[str, Any], *, local: bool) -> dict[str, Any]:
    """What the engine says and, when it is local, what lies on this machine."""
    facts: dict[str, Any] = {
        "runtimes": sorted(info.get("Runtimes") or {}),
        "default_runtime": info.get("DefaultRuntime"),
        "cdi_spec_dirs": info.get("CDISpecDirs") or [],
        "cdi_devices": [
            d["ID"] for d in info.get("DiscoveredDevices") or [] if str(d.get("ID", "")).startswith(CDI_CLASS)
        ],
        "engine": info.get("ServerVersion"),
        "local": local,
    }
    if local:
        specs = {}
        for directory in facts["cdi_spec_dirs"]:
            specs.update(_cdi_specs(Path(directory)))
        facts["cdi_specs"] = specs
        if not facts["cdi_devices"]:
            facts["cdi_devices"] = sorted({f"{CDI_CLASS}={n}" for names in specs.values() for n in names})
        facts["device_nodes"] = sorted(glob.glob("/dev/nvidia[0-9]*")) + glob.glob("/dev/dxg")
        facts["hook"] = shutil.which("nvidia-container-runtime-hook") or shutil.which("nvidia-container-toolkit")
    return facts


def choose(
    facts: dict[str, Any], devices: tuple[str, ...], *, forced: str | None = None, asked: bool = False
) -> GpuAccess:
    """The decision itself, pure. ``asked`` turns "none found" from an answer into an error.

    Raises:
        CannotTell: none found and GPUs were asked for.
    """
    rejected: list[tuple[str, str]] = []
    no_node = facts["local"] and not facts.get("device_nodes")
    options: list[tuple[Kind, str | None, str]] = []
    named = facts["cdi_devices"]
    if not facts["cdi_spec_dirs"]:
        options.append(("cdi", "the engine has CDI off (features.cdi, Docker >= 25)", ""))
    elif not named:
        where = ", ".join(facts["cdi_spec_dirs"])
        options.append(("cdi", f"no CDI spec for {CDI_CLASS} in {where} (nvidia-ctk cdi generate)", ""))
    else:
        missing = [d for d in devices if f"{CDI_CLASS}={d}" not in named]
        text = f"CDI spec does not name {', '.join(missing)}; it has {', '.join(named)}" if missing else None
        options.append(("cdi", text, f"CDI devices {', '.join(named)}"))
    has_runtime = "nvidia" in facts["runtimes"]
    options.append(
        (
            "nvidia-runtime",
            None if has_runtime else "no runtime 'nvidia' registered with the engine",
            "runtime 'nvidia' registered",
        )
    )
    hook = facts.get("hook")
    options.append(("gpus", None if hook else "no nvidia-container-runtime-hook found", f"{hook}"))
    for kind, why_not, why in options:
        if forced is not None and kind != forced:
            rejected.append((kind, f"GPUIMG_GPU_ACCESS={forced}"))
        elif why_not is not None and forced != kind:
            rejected.append((kind, why_not))
        elif no_node and forced != kind:
            rejected.append((kind, "this machine has no /dev/nvidia* device"))
        else:
            rejected += [(k, "not needed") for k, _, _ in options[options.index((kind, why_not, why)) + 1 :]]
            reason = why if forced is None else f"GPUIMG_GPU_ACCESS={forced}"
            return GpuAccess(kind, devices, reason, tuple(rejected), {"facts": facts})
    if forced == "none":
        return GpuAccess("none", (), "GPUIMG_GPU_ACCESS=none", tuple(rejected), {"facts": facts})
    reasons = "; ".join(f"{k}: {r}" for k, r in rejected)
    text = "this machine has no NVIDIA device" if no_node else reasons
    if asked:
        raise CannotTell(f"no GPU to verify on: {text}", hint="run it on a GPU host, or use --gpus none")
    return GpuAccess("none", (), text, tuple(rejected), {"facts": facts})


def _cdi_specs(directory: Path) -> dict[str, list[str]]:
    """Spec file → device names of our class; unreadable files are left out (the engine ignores them, too)."""
    out: dict[str, list[str]] = {}
    for path in sorted([*directory.glob("*.json"), *directory.glob("*.yaml"), *directory.glob("*.yml")]):
        try:
            text = path.read_text()
            if path.suffix == ".json":
                spec = json.loads(text)
            else:
                import yaml

                spec = yaml.safe_load(text)
            if isinstance(spec, dict) and spec.get("kind") == CDI_CLASS:
                out[str(path)] = [str(d["name"]) for d in spec.get("devices", [])]
        except (OSError, ValueError, KeyError, TypeError) as error:
            out[f"{path} (unreadable: {type(error).__name__})"] = []
    return out
