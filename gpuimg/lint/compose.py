"""Compose files: does the service get a GPU, is the request well formed, is there shared memory, do its images exist?"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gpuimg.errors import BadInput
from gpuimg.knowledge import Knowledge
from gpuimg.lint.base import base_of
from gpuimg.lint.docker_base import image_tag
from gpuimg.lint.docker_env import variable
from gpuimg.lint.facts import finding
from gpuimg.nouns import LintFinding
from gpuimg.project.dockerfile import parse_dockerfile
from gpuimg.project.text import read_text
from gpuimg.project.yamltext import Node, elements, get, is_mapping, is_sequence, items, line_of, parse_yaml, scalar

GPU_DOCS = "https://docs.docker.com/compose/how-tos/gpu-support/"
SPEC = "https://github.com/compose-spec/compose-spec/blob/main/deploy.md#devices"

NEEDS_GPU = re.compile(
    r"vllm/vllm-openai|tritonserver|nvcr\.io/nvidia/(pytorch|tensorflow|tensorrt|nim)|nim/|huggingface/text-generation-inference|lmsysorg/sglang|"
    r"nvidia/cuda|tensorrt|-gpu(\b|$)|dcgm-exporter|cuda\d|:cuda|-cuda|cu1[1-3]\d",
    re.I,
)
SHARED_MEMORY = re.compile(r"pytorch|vllm|sglang|text-generation-inference|tritonserver|torch|llama-factory", re.I)
DEVICE_KEYS = ("capabilities", "driver", "count", "device_ids", "options")


@dataclass(frozen=True)
class Service:
    """One service, what the rules ask of it found once."""

    name: str
    node: Node
    line: int
    image: str | None
    environment: tuple[tuple[str, str, int], ...]
    command: str
    asks: bool
    """Some form of GPU access is asked for."""


def compose(text: str, file: str, kb: Knowledge, folder: Path | None = None) -> Iterator[LintFinding]:
    """All rules of a compose file; Dockerfiles it builds are looked for in ``folder``. Raises BadInput for no mapping."""
    root = parse_yaml(text, file)
    if root is None or not is_mapping(root):
        raise BadInput.at(file, 1, "is no compose file: expected 'services:'")
    version = scalar(get(root, "version"))
    services = get(root, "services")
    if services is None and version is None:
        services = root
    for name, key, node in items(services):
        if not is_mapping(node):
            continue
        service = _service(name, node, line_of(key))
        yield from _service_rules(service, file, version, kb, folder)


def _service(name: str, node: Node, line: int) -> Service:
    environment: list[tuple[str, str, int]] = []
    env = get(node, "environment")
    for element in elements(env) if is_sequence(env) else []:
        key, equals, value = (scalar(element) or "").partition("=")
        if equals:
            environment.append((key.strip(), value, line_of(element)))
    for key, _, value_node in items(env):
        environment.append((key, scalar(value_node) or "", line_of(value_node)))
    words = [scalar(e) or "" for k in ("command", "entrypoint") for e in elements(get(node, k))]
    asks = bool(
        get(node, "gpus") or scalar(get(node, "runtime")) == "nvidia" or list(_devices(node)) or _cdi(node)
        or any("/dev/nvidia" in (scalar(d) or "") for d in elements(get(node, "devices")))
    )  # fmt: skip
    return Service(name, node, line, scalar(get(node, "image")), tuple(environment), " ".join(words), asks)


def _devices(node: Node) -> Iterator[Node]:
    yield from elements(get(node, "deploy", "resources", "reservations", "devices"))


def _cdi(node: Node) -> bool:
    return any("nvidia.com/gpu" in (scalar(d) or "") for d in elements(get(node, "devices")))


def _service_rules(
    service: Service, file: str, version: str | None, kb: Knowledge, folder: Path | None
) -> Iterator[LintFinding]:
    where = (file, service.line)
    if service.image and "$" not in service.image:
        image_node = get(service.node, "image")
        yield from image_tag(service.image, (file, line_of(image_node) if image_node else service.line), kb)
    for key, value, line in service.environment:
        yield from variable(key, value, (file, line))
    wanted = _wants_gpu(service, kb)
    if wanted and not service.asks:
        yield finding(
            "compose-no-gpu", "error", where,
            f"service {service.name} asks for no GPU ({wanted}): the container starts without one, unless nvidia is the engine's default runtime",
            "deploy: {resources: {reservations: {devices: [{driver: nvidia, count: all, capabilities: [gpu]}]}}}", GPU_DOCS,
        )  # fmt: skip
    built = _built_on(service, folder) if wanted is None and not service.asks else None
    if built is not None and base_of(kb, built).gpu:
        yield finding(
            "compose-no-gpu", "warning", where,
            f"service {service.name} builds on {built} and asks for no GPU: the container starts without one",
            "deploy: {resources: {reservations: {devices: [{driver: nvidia, count: all, capabilities: [gpu]}]}}}", GPU_DOCS,
        )  # fmt: skip
    yield from _device_requests(service, file)
    yield from _misplaced(service, file)
    yield from _runtime(service, file, version, kb)
    yield from _shared_memory(service, file)


def _built_on(service: Service, folder: Path | None) -> str | None:
    """The base of the Dockerfile a service builds, when it lies beside the compose file and can be read."""
    build = get(service.node, "build")
    if build is None or folder is None:
        return None
    context = scalar(build) or scalar(get(build, "context")) or "."
    name = scalar(get(build, "dockerfile")) or "Dockerfile"
    path = folder / context / name
    try:
        made = parse_dockerfile(read_text(path), str(path))
    except (BadInput, ValueError):
        return None
    target = scalar(get(build, "target"))
    stage = (made.stage_named(target) if target else None) or made.final
    return made.root(stage).base


def _wants_gpu(service: Service, kb: Knowledge) -> str | None:
    """Why the service needs a GPU, None when nothing says so."""
    for key, value, _ in service.environment:
        if key == "NVIDIA_VISIBLE_DEVICES" and value.strip().lower() not in {"void", "none", ""}:
            return "it sets NVIDIA_VISIBLE_DEVICES"
        if key == "CUDA_VISIBLE_DEVICES" and value.strip() not in {"", "-1"}:
            return "it sets CUDA_VISIBLE_DEVICES"
        if key == "NVIDIA_DRIVER_CAPABILITIES":
            return "it sets NVIDIA_DRIVER_CAPABILITIES"
    if re.search(
        r"nvidia-smi|--device[= ]cuda|--gpus\b|--tensor-parallel-size|--n-gpu-layers|--gpu\b", service.command
    ):
        return "its command uses one"
    if service.image:
        base = base_of(kb, service.image)
        cpu = re.search(r"(^|[-_:])cpu($|[-_])", service.image)
        if not cpu and (base.gpu or NEEDS_GPU.search(service.image)):
            return f"its image {service.image} is made for one"
    return None


def _device_requests(service: Service, file: str) -> Iterator[LintFinding]:
    for device in _devices(service.node):
        line = line_of(device)
        if not is_mapping(device):
            yield finding(
                "compose-device",
                "error",
                (file, line),
                "a device request is a mapping with capabilities",
                "- {driver: nvidia, count: all, capabilities: [gpu]}",
                SPEC,
            )
            continue
        keys = {k: v for k, _, v in items(device)}
        capabilities = keys.get("capabilities")
        if capabilities is None:
            yield finding(
                "compose-device",
                "error",
                (file, line),
                "capabilities is missing: compose refuses a device request without it",
                "capabilities: [gpu]",
                SPEC,
            )
        elif not is_sequence(capabilities):
            yield finding(
                "compose-device",
                "error",
                (file, line_of(capabilities)),
                "capabilities must be a list",
                "capabilities: [gpu]",
                SPEC,
            )
        else:
            flat = [scalar(e) for e in elements(capabilities)] + [
                scalar(x) for e in elements(capabilities) if is_sequence(e) for x in elements(e)
            ]
            if "gpu" not in flat and "nvidia" not in flat and scalar(keys.get("driver")) != "cdi":
                yield finding(
                    "compose-device", "error", (file, line_of(capabilities)), f"capabilities {[f for f in flat if f]} hold no 'gpu': no driver serves them ('could not select device driver')", "capabilities: [gpu]", SPEC,
                )  # fmt: skip
        if "count" in keys and "device_ids" in keys:
            yield finding(
                "compose-device",
                "error",
                (file, line_of(keys["count"])),
                "count and device_ids exclude each other",
                "keep one of the two",
                SPEC,
            )
        count = scalar(keys.get("count"))
        if count is not None and "$" not in count and count != "all" and not re.fullmatch(r"\d+", count):
            yield finding(
                "compose-device",
                "error",
                (file, line_of(keys["count"])),
                f"count is {count!r}: a number or 'all' is wanted",
                "count: all",
                SPEC,
            )
        if count == "0":
            yield finding(
                "compose-device", "warning", (file, line_of(keys["count"])), "count: 0 gives no GPU", "count: all", SPEC
            )
        ids = keys.get("device_ids")
        if ids is not None and not is_sequence(ids):
            yield finding(
                "compose-device",
                "error",
                (file, line_of(ids)),
                "device_ids must be a list of strings",
                "device_ids: ['0']",
                SPEC,
            )
        for element in elements(ids) if is_sequence(ids) else []:
            if getattr(element, "tag", "").endswith(":int"):
                yield finding(
                    "compose-device",
                    "error",
                    (file, line_of(element)),
                    f"device_ids holds the number {scalar(element)}: strings are wanted",
                    f"device_ids: ['{scalar(element)}']",
                    SPEC,
                )
                break
        for key in keys:
            if key not in DEVICE_KEYS:
                yield finding(
                    "compose-device",
                    "error",
                    (file, line),
                    f"unknown key {key!r} in a device request",
                    f"allowed: {', '.join(DEVICE_KEYS)}",
                    SPEC,
                )


def _misplaced(service: Service, file: str) -> Iterator[LintFinding]:
    """Requests where compose does not look for them."""
    node = service.node
    for path in (
        ("resources",),
        ("reservations",),
        ("deploy", "reservations"),
        ("deploy", "devices"),
        ("deploy", "resources", "devices"),
        ("deploy", "resources", "limits", "devices"),
    ):
        found = get(node, *path)
        if found is not None:
            yield finding(
                "compose-device", "error", (file, line_of(found)), f"{'.'.join(path)} is not where compose looks for devices", "deploy.resources.reservations.devices", SPEC,
            )  # fmt: skip
    for key in ("gpu", "nvidia", "gpu_count"):
        found = get(node, key)
        if found is not None:
            yield finding(
                "compose-device",
                "error",
                (file, line_of(found)),
                f"a service has no key {key!r}",
                "gpus: all (Compose 2.30 or newer), or deploy.resources.reservations.devices",
                GPU_DOCS,
            )
    generic = get(node, "deploy", "resources", "reservations", "generic_resources")
    if generic is not None:
        yield finding(
            "compose-device",
            "warning",
            (file, line_of(generic)),
            "generic_resources is for Swarm: docker compose ignores it",
            "devices with capabilities: [gpu]",
            SPEC,
        )


def _runtime(service: Service, file: str, version: str | None, kb: Knowledge) -> Iterator[LintFinding]:
    runtime = get(service.node, "runtime")
    if scalar(runtime) == "nvidia" and runtime is not None:
        where = (file, line_of(runtime))
        names = {k for k, _, _ in service.environment}
        plain = service.image is not None and not base_of(kb, service.image).gpu and not NEEDS_GPU.search(service.image)
        if plain and "NVIDIA_VISIBLE_DEVICES" not in names:
            yield finding(
                "nvidia-visible-devices",
                "warning",
                where,
                "runtime: nvidia mounts GPUs only where NVIDIA_VISIBLE_DEVICES is set, and this image may not set it",
                "environment: [NVIDIA_VISIBLE_DEVICES=all]",
                GPU_DOCS,
            )
        if version is not None and re.match(r"3(\.|$)", version):
            yield finding(
                "compose-runtime",
                "note",
                where,
                f"the old docker-compose refuses 'runtime' in files of version {version}; Docker's compose plugin takes it",
                "use deploy.resources.reservations.devices, and drop 'version'",
                GPU_DOCS,
            )
    elif scalar(runtime) in {"nvidia-docker", "nvidia-container-runtime", "gpu"} and runtime is not None:
        yield finding(
            "compose-runtime",
            "error",
            (file, line_of(runtime)),
            f"there is no runtime {scalar(runtime)!r}: the toolkit registers 'nvidia'",
            "runtime: nvidia",
            GPU_DOCS,
        )
    for element in elements(get(service.node, "devices")):
        text = scalar(element) or ""
        if (
            "/dev/nvidia" in text
            and not list(_devices(service.node))
            and scalar(runtime) != "nvidia"
            and get(service.node, "gpus") is None
        ):
            yield finding(
                "compose-device",
                "warning",
                (file, line_of(element)),
                "device files alone are not enough: libcuda and nvidia-smi are not mounted",
                "deploy.resources.reservations.devices with capabilities: [gpu]",
                GPU_DOCS,
            )
            break
    for element in elements(get(service.node, "volumes")):
        text = scalar(element) or ""
        if re.search(r"libcuda\.so|libnvidia-|/nvidia-smi|/usr/local/nvidia", text):
            yield finding(
                "driver-in-image",
                "warning",
                (file, line_of(element)),
                "driver files mounted by hand contradict those of the container runtime after the next driver update",
                "remove the mount",
                GPU_DOCS,
            )
            break
    if (
        scalar(get(service.node, "driver_opts")) is None
        and get(service.node, "volume_driver") is not None
        and "nvidia" in (scalar(get(service.node, "volume_driver")) or "")
    ):
        yield finding(
            "nvidia-docker",
            "error",
            (file, service.line),
            "volume_driver nvidia-docker belongs to nvidia-docker 1, which is gone",
            "deploy.resources.reservations.devices",
            GPU_DOCS,
        )


def _shared_memory(service: Service, file: str) -> Iterator[LintFinding]:
    node = service.node
    ipc = scalar(get(node, "ipc"))
    size = get(node, "shm_size")
    tmpfs = any(
        "/dev/shm" in (scalar(v) or scalar(get(v, "target")) or "")
        for v in [*elements(get(node, "tmpfs")), *elements(get(node, "volumes"))]
    )
    if get(node, "deploy", "shm_size") is not None or get(node, "deploy", "resources", "shm_size") is not None:
        yield finding(
            "compose-shm",
            "error",
            (file, service.line),
            "shm_size is a key of the service, not of deploy",
            "move it up to the service",
            "https://docs.docker.com/reference/compose-file/services/#shm_size",
        )
        return
    if size is not None and ipc != "host":
        number = re.match(r"(?i)^\s*(\d+(?:\.\d+)?)\s*([kmg]?)", scalar(size) or "")
        if number:
            mib = float(number[1]) * {"": 1 / 1048576, "k": 1 / 1024, "m": 1, "g": 1024}[number[2].lower()]
            if mib < 512 and service.asks:
                yield finding(
                    "compose-shm",
                    "warning",
                    (file, line_of(size)),
                    f"shm_size {scalar(size)} is small: DataLoader workers and NCCL end with a bus error",
                    "shm_size: 8gb",
                    "https://pytorch.org/docs/stable/multiprocessing.html",
                )
        return
    if ipc in {"host", "shareable"} or (ipc or "").startswith(("service:", "container:")) or tmpfs:
        return
    named = f"{service.image or ''} {service.command}"
    if (service.asks or _gpu_image(service)) and SHARED_MEMORY.search(named):
        yield finding(
            "compose-shm", "warning", (file, service.line), f"service {service.name} has Docker's 64 MB of /dev/shm: DataLoader workers and NCCL end with a bus error",
            "shm_size: 8gb, or ipc: host", "https://pytorch.org/docs/stable/multiprocessing.html",
        )  # fmt: skip


def _gpu_image(service: Service) -> bool:
    return bool(service.image and NEEDS_GPU.search(service.image))
