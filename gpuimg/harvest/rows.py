"""What was read from wheels → Build rows (as JSON objects). Pure: no network, no files.

A value that was not read stays out. ``how`` says how each value was obtained.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from gpuimg.harvest.collect import Collected, WheelFacts, on_machine, releases
from gpuimg.harvest.fatbin import sort_targets
from gpuimg.harvest.index import IndexFile
from gpuimg.harvest.packages import BY_NAME, PackageSpec

Row = dict[str, Any]

_KEPT = re.compile(
    r"^(torch|torchvision|torchaudio|triton|pytorch-triton|numpy|xformers|flash-attn|jax|jaxlib|keras|tf-keras|"
    r"tensorrt(-cu\d+)?|vllm|sgl-kernel|flashinfer-python|cuda-python|ctranslate2|onnxruntime(-gpu)?|llvmlite|"
    r"transformers|ml-dtypes|protobuf|nvidia-(cudnn|nccl)(-cu\d+)?|cuda-toolkit)$"
)
_GLIBC = {"manylinux1": (2, 5), "manylinux2010": (2, 12), "manylinux2014": (2, 17)}
_NEWEST_PYTHON = 15
_SYSTEM_CUDA = {
    "onnxruntime-gpu",
    "paddlepaddle-gpu",
    "mindspore",
    "mindspore-gpu",
    "tensorflow",
    "tensorflow-gpu",
    "ctranslate2",
    "bitsandbytes",
    "dgl",
}
_CPU_ONLY = {"paddlepaddle", "tensorflow-cpu", "jaxlib", "keras", "tf-keras", "numpy", "scipy", "torchtext", "mmcv"}
_SOURCE_ONLY = {"flash-attn", "llama-cpp-python", "deepspeed", "mmcv-full", "detectron2"}


def glibc_of(files: Iterable[IndexFile], machine: str) -> str | None:
    """Oldest glibc any of the wheels' tags allows."""
    best: tuple[int, int] | None = None
    for file in files:
        for tag in file.tags:
            if not tag.platform.endswith(machine):
                continue
            match = re.match(r"manylinux_(\d+)_(\d+)_", tag.platform)
            known = (
                (int(match[1]), int(match[2]))
                if match
                else next((v for k, v in _GLIBC.items() if tag.platform.startswith(k + "_")), None)
            )
            if known is not None and (best is None or known < best):
                best = known
    return f"{best[0]}.{best[1]}" if best else None


def pythons_of(files: Iterable[IndexFile], requires_python: str | None, classifiers: Iterable[str]) -> list[str]:
    """Python minors with a wheel. abi3 and py3 wheels say nothing in their tags: Requires-Python and classifiers do."""
    minors: set[tuple[int, int]] = set()
    any_python = False
    floor = 0
    for file in files:
        for tag in file.tags:
            match = re.fullmatch(r"cp(\d)(\d+)", tag.interpreter)
            if tag.abi == "abi3" and match:
                any_python, floor = True, max(floor, int(match[2]))
            elif tag.interpreter.startswith("py"):
                any_python = True
            elif match and not tag.abi.endswith("t"):
                minors.add((int(match[1]), int(match[2])))
    if any_python:
        try:
            allowed = SpecifierSet(requires_python or "")
        except InvalidSpecifier:
            allowed = SpecifierSet()
        said = {m.group(1) for c in classifiers if (m := re.search(r"Python :: (3\.\d+)$", c))}
        fitting = {
            (3, minor)
            for minor in range(max(floor, 6), _NEWEST_PYTHON + 1)
            if any(allowed.contains(f"3.{minor}.{patch}") for patch in (0, 9))
        }
        listed = {m for m in fitting if f"{m[0]}.{m[1]}" in said}
        minors |= listed or fitting
    return [f"{a}.{b}" for a, b in sorted(minors)]


def requirements(
    facts: WheelFacts, *, machine: str = "x86_64", python: str = "3.11", extra: str = ""
) -> dict[str, Requirement]:
    """Requirements that hold on Linux for that machine, Python and extra, by normal name."""
    environment = {
        "platform_system": "Linux",
        "platform_machine": machine,
        "sys_platform": "linux",
        "python_version": python,
        "python_full_version": f"{python}.0",
        "os_name": "posix",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "platform_release": "6.0",
        "extra": extra,
    }
    found: dict[str, Requirement] = {}
    for raw in facts.requires:
        try:
            requirement = Requirement(raw)
        except InvalidRequirement:
            continue
        if requirement.marker is not None and not requirement.marker.evaluate(environment):
            continue
        found[canonicalize_name(requirement.name)] = requirement
    return found


def _pin(requirement: Requirement | None) -> str | None:
    """The version of an exact pin."""
    if requirement is None:
        return None
    match = re.fullmatch(r"===?([^,*]+)", str(requirement.specifier))
    return match[1] if match else None


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _first(found: Mapping[str, Requirement], *names: str) -> Requirement | None:
    return next((found[n] for n in names if n in found), None)


def cuda_pin(found: Mapping[str, Requirement]) -> tuple[str | None, str | None]:
    """(wheel_cuda, how) from pins on cuda-toolkit or nvidia-cuda-runtime."""
    pin = _pin(
        _first(found, "cuda-toolkit", "nvidia-cuda-runtime-cu11", "nvidia-cuda-runtime-cu12", "nvidia-cuda-runtime")
    )
    if pin:
        return _minor(pin), "pin"
    majors = {m[1] for n in found if (m := re.search(r"^nvidia-.*-cu(1\d)$", n))}
    return (majors.pop(), "range") if len(majors) == 1 else (None, None)


def _set_library(row: Row, field: str, requirement: Requirement | None) -> None:
    if requirement is None:
        return
    pin = _pin(requirement)
    if pin or str(requirement.specifier):
        row[field] = pin or str(requirement.specifier)
        row["how"][field] = "pin" if pin else "range"


def _libraries(row: Row, found: Mapping[str, Requirement]) -> None:
    for field, stem in (("cudnn", "nvidia-cudnn"), ("nccl", "nvidia-nccl")):
        _set_library(row, field, _first(found, f"{stem}-cu11", f"{stem}-cu12", f"{stem}-cu13"))


def _kept(found: Mapping[str, Requirement]) -> list[str]:
    return sorted(f"{name}{requirement.specifier}" for name, requirement in found.items() if _KEPT.match(name))


def _text(facts: WheelFacts) -> str:
    return "\n".join(facts.texts.values())


def _sm(row: Row, facts: WheelFacts) -> None:
    if facts.sm:
        row["sm"] = facts.sm
        row["how"]["sm"] = "embedded"
        if facts.sm_how and facts.sm_how.startswith("code headers of the first"):
            row["notes"].append(f"SM list from {facts.sm_how}")


def _soname_major(facts: WheelFacts, library: str) -> str | None:
    majors = {m[1] for s in facts.sonames if (m := re.match(rf"lib{library}\.so\.(\d+)", s))}
    return majors.pop() if len(majors) == 1 else None


# --- one function per kind of package -----------------------------------------------------------------------------


def _torch(row: Row, facts: WheelFacts) -> list[Row]:
    match = re.search(r"^cuda\b[^=\n]*= *(?:'([\d.]+)'|None)", _text(facts), re.M)
    cuda = _minor(match[1]) if match and match[1] else None
    row["device"] = ("cuda" if cuda else "cpu") if match else None
    row["how"]["wheel_cuda"] = "embedded"
    if cuda:
        found = requirements(facts, machine=row["machine"])
        row["wheel_cuda"] = cuda
        _libraries(row, found)
        row["requires"] = [r for r in _kept(found) if not r.startswith(("nvidia", "cuda-toolkit"))]
        _sm(row, facts)
    else:
        row["notes"].append("CPU-only build on PyPI")
        found = {k: v for k, v in requirements(facts, machine=row["machine"]).items() if k in ("triton", "numpy")}
        row["requires"] = _kept(found)
    return [row]


def _tensorflow(row: Row, facts: WheelFacts) -> list[Row]:
    info: dict[str, Any] = {}
    match = re.search(r"OrderedDict\((\[.*\])\)", _text(facts), re.S) or re.search(
        r"build_info = (\{.*?\})", _text(facts), re.S
    )
    if match:
        try:
            info = dict(ast.literal_eval(match[1]))
        except (ValueError, SyntaxError):
            info = {}
    found = requirements(
        facts, machine=row["machine"], python="3.9" if Version(row["version"]) < Version("2.16") else "3.11"
    )
    row["requires"] = [r for r in _kept(found) if not r.startswith(("nvidia", "tensorrt"))]
    cuda = info.get("cuda_version")
    built_for_gpu = info.get("is_cuda_build", bool(cuda)) if info else None
    if info and not built_for_gpu:
        row["device"] = "cpu"
        row.pop("bundles_cuda", None)
        row["how"]["device"] = "embedded"
        return [row]
    if cuda:
        row["device"] = "cuda"
        row["wheel_cuda"] = _minor(str(cuda))
        row["how"]["wheel_cuda"] = "embedded"
        if info.get("cudnn_version"):
            row["cudnn"] = str(info["cudnn_version"])
            row["how"]["cudnn"] = "embedded"
        targets = [str(t) for t in info.get("cuda_compute_capabilities") or []]
        if targets:
            # TensorFlow's "compute_80" asks nvcc for both the SASS and the PTX of 8.0.
            targets += [t.replace("compute", "sm") for t in targets if t.startswith("compute")]
            row["sm"] = sort_targets(targets)
            row["how"]["sm"] = "embedded"
    elif not info:
        row["device"] = None
    extra = next((e for e in facts.extras if e.replace("_", "-") == "and-cuda"), None)
    if extra is None or row["machine"] != "x86_64":
        return [row]
    with_cuda: Row = {**row, "extra": "and-cuda", "bundles_cuda": True, "default": False}
    with_cuda["how"] = dict(row["how"])
    pinned = requirements(facts, python="3.11", extra=extra)
    with_cuda["requires"] = _kept({k: v for k, v in pinned.items() if not k.startswith(("nvidia", "cuda"))})
    with_cuda.pop("cudnn", None)
    _libraries(with_cuda, pinned)
    return [row, with_cuda]


def _jax(row: Row, facts: WheelFacts, plugins: Mapping[str, list[Row]], jaxlib: Mapping[str, Row]) -> list[Row]:
    row["device"] = "cpu"
    row["notes"].append("a bare jax is CPU-only: the GPU needs an extra such as jax[cuda12]")
    lib = jaxlib.get(row["version"])
    if lib:
        row["pythons"] = lib["pythons"]
        row["glibc"] = lib.get("glibc")
    bare = requirements(facts, python="3.12")
    row["requires"] = _kept(bare)
    rows = [row]
    seen: set[str] = set()
    for raw in facts.extras:
        name = raw.replace("_", "-")
        match = re.fullmatch(r"cuda(1[123])(-pip|-local|-cudnn\d+)?|cuda", name)
        if match is None or name in seen:
            continue
        seen.add(name)
        found = requirements(facts, python="3.12", extra=raw)
        made: Row = {
            **row,
            "extra": name,
            "default": False,
            "device": "cuda",
            "how": dict(row["how"]),
            "notes": [],
            "requires": [],
        }
        made["bundles_cuda"] = bool(match[2] is None or match[2] == "-pip")
        local = re.search(r"\+cuda(\d+)\.cudnn(\d)(\d)", " ".join(str(r) for r in found.values()))
        plugin_name = next((n for n in found if re.fullmatch(r"jax-cuda\d+-plugin", n)), None)
        if plugin_name:
            specifier = found[plugin_name].specifier
            fitting = [p for p in plugins.get(plugin_name, []) if specifier.contains(p["version"])]
            if not fitting:
                made["device"] = None
                made["notes"].append(f"no {plugin_name}{specifier} was ever published: the extra cannot be installed")
                made["wheel_cuda"] = match[1]
                rows.append(made)
                continue
            plugin = fitting[-1]
            _libraries(made, found)
            for field in ("pythons", "glibc", "sm", "cudnn", "nccl"):
                if plugin.get(field):
                    made[field] = plugin[field]
            made["wheel_cuda"] = match[1] or plugin.get("wheel_cuda")
            made["how"] = {**made["how"], **plugin["how"]}
            made["requires"] = [f"{plugin_name}=={plugin['version']}"]
            if plugin.get("accepts"):
                made["notes"].append(f"accepts CUDA {plugin['accepts']}")
        elif local:
            made["index"] = "jax"
            made["index_url"] = "@jax"
            made["wheel_cuda"] = local[1] if len(local[1]) < 3 else f"{local[1][:2]}.{local[1][2:]}"
            made["cudnn"] = f"{local[2]}.{local[3]}"
            made["local"] = f"cuda{local[1]}.cudnn{local[2]}{local[3]}"
            made["notes"].append("jaxlib comes from jax's own release page, not from PyPI")
            _libraries(made, {k: v for k, v in found.items() if k.startswith("nvidia-nccl")})
        elif match[1]:
            made["wheel_cuda"] = match[1]
        made["how"].setdefault("wheel_cuda", "pin" if local else "range")
        rows.append(made)
    return rows


def _plugin(row: Row, facts: WheelFacts) -> list[Row]:
    extra = next((e for e in facts.extras if e.replace("_", "-") == "with-cuda"), "")
    found = requirements(facts, python="3.12", extra=extra)
    match = re.search(r"cuda(\d+)", row["framework"])
    row["wheel_cuda"] = match[1] if match else None
    row["how"]["wheel_cuda"] = "range"
    runtime = _first(found, "nvidia-cuda-runtime-cu12", "nvidia-cuda-runtime")
    if runtime is not None:
        row["accepts"] = str(runtime.specifier)
    _libraries(row, found)
    _sm(row, facts)
    return [row]


def _vllm(row: Row, facts: WheelFacts, torch: Mapping[tuple[str, str], Row]) -> list[Row]:
    found = requirements(facts, machine=row["machine"])
    row["requires"] = [r for r in _kept(found) if not r.startswith(("nvidia", "protobuf"))]
    pin = _pin(found.get("torch"))
    joined = torch.get((pin, row["machine"])) if pin else None
    major = _soname_major(facts, "cudart")
    if joined and joined.get("wheel_cuda"):
        row["wheel_cuda"] = joined["wheel_cuda"]
        row["how"]["wheel_cuda"] = "joined"
        for field in ("cudnn", "nccl"):
            if joined.get(field):
                row[field] = joined[field]
                row["how"][field] = "joined"
        if major and major != str(joined["wheel_cuda"]).split(".")[0]:
            row["wheel_cuda"], row["how"]["wheel_cuda"] = major, "soname"
            row["notes"].append(
                f"its own libraries link CUDA {major}, its torch pin is built for {joined['wheel_cuda']}"
            )
    elif major:
        row["wheel_cuda"], row["how"]["wheel_cuda"] = major, "soname"
    if pin and joined and joined["device"] == "cpu":
        row["notes"].append("the torch it pins is CPU-only on PyPI for this machine: take torch from PyTorch's index")
    _sm(row, facts)
    return [row]


def _onnxruntime(row: Row, facts: WheelFacts) -> list[Row]:
    match = re.search(r"^cuda_version = '([\d.]+)'", _text(facts), re.M)
    major = _soname_major(facts, "cudart") or _soname_major(facts, "cublas")
    if match:
        row["wheel_cuda"], row["how"]["wheel_cuda"] = _minor(match[1]), "embedded"
    elif major:
        row["wheel_cuda"], row["how"]["wheel_cuda"] = major, "soname"
    pinned: dict[str, Requirement] = {}
    for extra in facts.extras:
        pinned.update({k: v for k, v in requirements(facts, extra=extra).items() if k.startswith("nvidia")})
    _libraries(row, pinned)
    cudnn = _soname_major(facts, "cudnn")
    if cudnn and "cudnn" not in row:
        row["cudnn"], row["how"]["cudnn"] = cudnn, "soname"
    row["requires"] = [r for r in _kept(requirements(facts)) if r.startswith("numpy")]
    _sm(row, facts)
    return [row]


def _paddle(row: Row, facts: WheelFacts) -> list[Row]:
    for field, name in (("wheel_cuda", "cuda_version"), ("cudnn", "cudnn_version")):
        match = re.search(rf"^{name}\s*= '([\d.]+)'", _text(facts), re.M)
        if match:
            row[field] = _minor(match[1]) if field == "wheel_cuda" else match[1]
            row["how"][field] = "embedded"
    _sm(row, facts)
    return [row]


def _mindspore(row: Row, facts: WheelFacts) -> list[Row]:
    plugins = sorted(
        {m[1] for n in facts.names if (m := re.search(r"libmindspore_gpu\.so\.(\d+\.\d+)$", n))}, key=Version
    )
    checked = [
        re.sub(r'[" ]', "", group).split(",")
        for group in re.findall(r'version = \["([^\]]*)"\]', _text(facts))
        if "10.1" in group or "11.1" in group
    ]
    row["requires"] = [r for r in _kept(requirements(facts)) if r.startswith("numpy")]
    if plugins or checked:
        row["cuda_builds"] = plugins or checked[0]
        row["wheel_cuda"] = row["cuda_builds"][-1]
        row["how"]["wheel_cuda"] = "embedded" if plugins else "docs"
        row["device"] = "cuda"
    elif row["framework"] == "mindspore":
        row["device"] = "cpu"
    return [row]


def _cupy(row: Row, facts: WheelFacts) -> list[Row]:
    suffix = row["framework"].removeprefix("cupy-cuda")
    if suffix.endswith("x"):
        row["wheel_cuda"] = suffix[:-1]
    else:
        row["wheel_cuda"] = f"{suffix[:-1]}.{suffix[-1]}"
    row["how"]["wheel_cuda"] = "docs"
    for text in facts.texts.values():
        try:
            said = json.loads(text)
        except ValueError:
            continue
        for field in ("cudnn", "nccl"):
            if isinstance(said.get(field), dict) and said[field].get("version"):
                row[field] = str(said[field]["version"])
                row["how"][field] = "embedded"
    row["bundles_cuda"] = False
    row["requires"] = [r for r in _kept(requirements(facts)) if r.startswith("numpy")]
    return [row]


def _xformers(row: Row, facts: WheelFacts) -> list[Row]:
    found = requirements(facts)
    row["requires"] = [r for r in _kept(found) if r.startswith(("torch", "triton", "numpy"))]
    for text in facts.texts.values():
        try:
            said = json.loads(text)
        except ValueError:
            continue
        cuda = said.get("version", {}).get("cuda")
        if cuda:
            row["wheel_cuda"], row["how"]["wheel_cuda"] = f"{cuda // 100}.{cuda % 100}", "embedded"
        built = said.get("version", {}).get("torch")
        if built:
            row["notes"].append(f"built with torch {built}")
        listed = str((said.get("env") or {}).get("TORCH_CUDA_ARCH_LIST") or "").replace(";", " ").split()
        targets: list[str] = []
        for item in listed:
            number = item.removesuffix("+PTX").replace(".", "")
            targets.append(f"sm_{number}")
            if item.endswith("+PTX"):
                targets.append(f"compute_{number}")
        if targets:
            row["sm"], row["how"]["sm"] = sort_targets(targets), "embedded"
    return [row]


def _bitsandbytes(row: Row, facts: WheelFacts) -> list[Row]:
    found = sorted({m[1] for n in facts.names if (m := re.search(r"_cuda(\d{2,3})(?:_nocublaslt\d*)?\.so$", n))})
    row["cuda_builds"] = sorted((f"{x[:-1]}.{x[-1]}" for x in found), key=Version)
    if row["cuda_builds"]:
        row["wheel_cuda"] = row["cuda_builds"][-1]
        row["how"]["wheel_cuda"] = "embedded"
    row["requires"] = [r for r in _kept(requirements(facts)) if r.startswith("torch")]
    return [row]


def _tensorrt_llm(row: Row, facts: WheelFacts) -> list[Row]:
    found = requirements(facts, python="3.12")
    row["index"], row["index_url"] = "nvidia", "@nvidia"
    row["pythons"] = sorted(
        {m[1] for c in facts.classifiers if (m := re.search(r"Python :: (3\.\d+)$", c))}, key=Version
    )
    row["requires"] = [r for r in _kept(found) if r.startswith(("torch", "tensorrt", "numpy", "cuda-python"))]
    local = re.search(r"\+cu(\d\d)(\d)", str(found["torch"].specifier)) if "torch" in found else None
    cuda, how = cuda_pin(found)
    python_pin = (
        re.search(r"(?:==|~=)?(\d+\.\d+)", str(found["cuda-python"].specifier)) if "cuda-python" in found else None
    )
    if local:
        cuda, how = f"{local[1]}.{local[2]}", "pin"
    elif cuda is None and python_pin and str(found["cuda-python"].specifier).startswith("=="):
        cuda, how = python_pin[1], "pin"
    if cuda:
        row["wheel_cuda"], row["how"]["wheel_cuda"] = cuda, str(how)
    _libraries(row, found)
    row["notes"].append("PyPI holds a stub that fetches the wheel from NVIDIA's own index")
    return [row]


def _generic(row: Row, facts: WheelFacts) -> list[Row]:
    found = requirements(facts)
    for extra in BY_NAME[row["framework"]].extras:
        found = {**requirements(facts, extra=extra), **found}
    row["requires"] = [r for r in _kept(found) if not r.startswith(("nvidia", "protobuf"))]
    if facts.file.endswith("-none-any.whl") and row["device"] == "cuda":
        row["device"] = None
        row["notes"].append("pure Python: its GPU code is in the packages it requires")
    return [row]


def _sglang(row: Row, facts: WheelFacts, torch: Mapping[tuple[str, str], Row], vllm: Mapping[str, Row]) -> list[Row]:
    """Pure Python on torch: its CUDA is that of the torch it pins, or of the torch of the vLLM it pins."""
    made = _generic(row, facts)
    found = requirements(facts)
    for extra in BY_NAME["sglang"].extras:
        found = {**requirements(facts, extra=extra), **found}
    pin, engine = _pin(found.get("torch")), _pin(found.get("vllm"))
    joined = torch.get((pin, row["machine"])) if pin else vllm.get(engine) if engine else None
    if joined and joined.get("wheel_cuda"):
        row["wheel_cuda"], row["how"]["wheel_cuda"] = joined["wheel_cuda"], "joined"
    return made


_READERS = {
    "torch": _torch,
    "tensorflow": _tensorflow,
    "tensorflow-gpu": _tensorflow,
    "onnxruntime-gpu": _onnxruntime,
    "paddlepaddle-gpu": _paddle,
    "mindspore": _mindspore,
    "mindspore-gpu": _mindspore,
    "xformers": _xformers,
    "bitsandbytes": _bitsandbytes,
    "tensorrt-llm": _tensorrt_llm,
}


def _shell(spec: PackageSpec, version: Version, machine: str, files: list[IndexFile]) -> Row | None:
    """What the file names alone say of one version on one machine."""
    wheels = [f for f in files if f.wheel and on_machine(f, machine)]
    only_any = bool(wheels) and all(t.platform == "any" for f in wheels for t in f.tags)
    archives = [f for f in files if not f.wheel]
    if machine != "x86_64" and (not wheels or only_any):
        return None
    if not wheels and not archives:
        return None
    fresh = [f for f in wheels if not f.yanked] or wheels
    row: Row = {
        "framework": spec.name,
        "version": str(version),
        "machine": machine,
        "index": "pypi",
        "default": True,
        "device": "cuda",
        "how": {},
        "notes": [],
        "released": min((f.uploaded for f in (wheels or archives) if f.uploaded), default=None),
        "source": f"pypi:{(fresh or archives)[-1].name}",
        "yanked": all(f.yanked for f in (wheels or archives)),
        "requires_python": next((f.requires_python for f in (wheels or archives) if f.requires_python), None),
    }
    if fresh:
        row["pythons"] = pythons_of(fresh, row["requires_python"], ())
        row["how"]["pythons"] = "embedded"
        row["glibc"] = glibc_of(fresh, machine)
        row["size_mib"] = round(max(f.size or 0 for f in fresh) / (1 << 20)) or None
    elif spec.name not in _SOURCE_ONLY and spec.depth != "sdist":
        row["index"] = "none"
        row["device"] = None
        row["notes"].append("source archive only: no wheel for this machine")
    elif spec.name in _SOURCE_ONLY:
        row["notes"].append(
            "PyPI has the source only: it is compiled at install, or taken from the project's release page"
        )
    if spec.name in _SYSTEM_CUDA:
        row["bundles_cuda"] = False
    if spec.name in _CPU_ONLY:
        row["device"] = "cpu"
    match = re.fullmatch(r"nvidia-(cudnn|nccl|cuda-runtime|cublas)(?:-cu(\d+))?", spec.name)
    if match:
        row["wheel_cuda"] = match[2] or _minor(str(version))
        if match[1] == "cuda-runtime":
            row["wheel_cuda"] = _minor(str(version))
        if match[1] in ("cudnn", "nccl"):
            row[match[1]] = str(version)
    cupy = re.fullmatch(r"tensorrt-cu(\d+)", spec.name)
    if cupy:
        row["wheel_cuda"] = cupy[1]
    return row


def _tidy(row: Row) -> Row:
    row.pop("framework", None)
    row.pop("accepts", None)
    keep = {"device", "bundles_cuda"}
    kept = {k: v for k, v in row.items() if k in keep or v not in (None, "", [], {}, False)}
    if kept.get("bundles_cuda") is True:
        kept.pop("bundles_cuda")
    return kept


def make_rows(collected: Collected) -> dict[str, list[Row]]:
    """Framework → rows, oldest version first, for everything that was collected."""
    facts_of: dict[tuple[str, str, str], WheelFacts] = {}
    tags = {item.file.name: item.file.tags for item in collected.chosen}
    for item in collected.chosen:
        found = collected.facts.get(item.file.name)
        if found is not None:
            facts_of[(item.spec.name, str(item.version), item.machine)] = found

    def shells(spec: PackageSpec) -> list[Row]:
        made = []
        for version, files in releases(spec, collected.listings.get(spec.name, ())).items():
            for machine in spec.machines:
                shell = _shell(spec, version, machine, files)
                if shell is not None:
                    made.append(shell)
        return made

    done: dict[str, list[Row]] = {}
    order = sorted(collected.listings, key=lambda n: (n == "sglang", n in ("jax", "vllm"), n))
    for name in order:
        spec = BY_NAME[name]
        rows: list[Row] = []
        for shell in shells(spec):
            facts = facts_of.get((name, shell["version"], shell["machine"]))
            if facts is None:
                rows.append(shell)
                continue
            shell["source"] = f"pypi:{facts.file}"
            if facts.requires_python:
                shell["requires_python"] = facts.requires_python
            if any(t.interpreter.startswith("py") or t.abi == "abi3" for t in tags.get(facts.file, ())):
                files = [f for f in collected.listings[name] if str(f.version) == shell["version"] and f.wheel]
                files = [f for f in files if on_machine(f, shell["machine"])]
                shell["pythons"] = pythons_of(files, facts.requires_python, facts.classifiers)
                shell["how"]["pythons"] = "range"
            if name == "jax":
                plugins = {n: done.get(n, []) for n in ("jax-cuda12-plugin", "jax-cuda13-plugin")}
                lib = {r["version"]: r for r in done.get("jaxlib", []) if r["machine"] == "x86_64"}
                rows.extend(_jax(shell, facts, plugins, lib))
            elif name == "vllm":
                torch = {(r["version"], r["machine"]): r for r in done.get("torch", [])}
                rows.extend(_vllm(shell, facts, torch))
            elif name == "sglang":
                torch = {(r["version"], r["machine"]): r for r in done.get("torch", [])}
                engines = {r["version"]: r for r in done.get("vllm", []) if r["machine"] == "x86_64"}
                rows.extend(_sglang(shell, facts, torch, engines))
            elif name.startswith("cupy"):
                rows.extend(_cupy(shell, facts))
            elif re.fullmatch(r"jax-cuda\d+-plugin", name):
                rows.extend(_plugin(shell, facts))
            else:
                rows.extend(_READERS.get(name, _generic)(shell, facts))
        done[name] = rows
    return {name: [_tidy(dict(row)) for row in done[name]] for name in sorted(done) if done[name]}
