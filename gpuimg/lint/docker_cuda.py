"""CUDA in an image: a second one, too much of one, the compiler where it is missing or of another major, the search path."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpuimg.knowledge import Knowledge
from gpuimg.knowledge.images import newest_cuda_tag
from gpuimg.lint.docker_context import DockerContext, Run, StageView, package_set
from gpuimg.lint.facts import Item, PackageSet, build_of, cuda_of, finding, major, newest
from gpuimg.nouns import LintFinding, LintSeverity
from gpuimg.project.entries import exact_version, wheel_name

CPP_EXTENSION = "https://pytorch.org/docs/stable/cpp_extension.html"
FLAVOURS = "https://hub.docker.com/r/nvidia/cuda#overview-of-images"
STUBS = "https://github.com/NVIDIA/nvidia-docker/issues/1466"
COMPAT = "https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html"

COMPILED: dict[str, str] = {
    "flash-attn": "must", "apex": "must", "flash-attn-3": "must", "transformer-engine": "must", "mamba-ssm": "must", "causal-conv1d": "must",
    "exllamav2": "may", "auto-gptq": "may", "autoawq": "may", "pytorch3d": "may", "detectron2": "may", "natten": "must",
    "tinycudann": "must", "nvdiffrast": "may", "diff-gaussian-rasterization": "must", "simple-knn": "must", "torch-scatter": "may",
    "torch-sparse": "may", "torch-cluster": "may", "torch-spline-conv": "may", "mmcv-full": "may", "mmcv": "may", "pointnet2-ops": "must",
    "minkowskiengine": "must", "spconv": "may", "grouped-gemm": "must", "sageattention": "must", "megablocks": "must", "stanford-stk": "must", "torchsparse": "must", "deformable-attention": "must",
}  # fmt: skip
"""Packages that pip compiles with nvcc: 'must' fails without it, 'may' quietly becomes a CPU build or has wheels elsewhere."""
_CMAKE_CUDA = re.compile(
    r"-D\s*\w*(GGML_CUDA|LLAMA_CUBLAS|LLAMA_CUDA|GGML_CUBLAS|USE_CUDA|WITH_CUDA|CUDA_ARCH\w*|CMAKE_CUDA_\w+|BUILD_CUDA)(:\w+)?=(on|1|true|yes|[\d;\"']+)",
    re.I,
)
_NVCC_CALL = re.compile(r"(^|/)nvcc$")


def compiles(view: StageView, packages: PackageSet, kb: Knowledge) -> list[tuple[Run, str, bool]]:
    """What is compiled with nvcc in a stage: (command, what, sure). Wheels by URL and known binary packages are not."""
    found: list[tuple[Run, str, bool]] = []
    for run in view.runs:
        command, made = run.command, run.install
        text = command.text
        if _NVCC_CALL.search(command.words[0] if command.words else "") and not re.search(r"--version|-V\b", text):
            found.append((run, "nvcc", True))
        elif command.program in {"cmake", "make", "bash", "sh"} and _CMAKE_CUDA.search(
            text + " " + " ".join(f"-D{k}={v}" for k, v in command.assigned)
        ):
            if command.program in {"cmake", "make"}:
                found.append((run, f"{command.program} with CUDA", True))
        elif re.search(r"(^|\s)(GGML_CUDA|LLAMA_CUBLAS|LLAMA_CUDA)=1", text) and command.program == "make":
            found.append((run, "make with CUDA", True))
        elif re.search(r"setup\.py\b.*\b(build|install|develop|bdist_wheel|build_ext)\b", text):
            forced = _forced(run)
            found.append((run, "python setup.py", forced or "--cuda_ext" in text))
        if made is None or made.manager not in {"pip", "uv"}:
            continue
        assigned = dict(command.assigned)
        variables = {**run.step.variables, **assigned}
        for one in made.requirements:
            if wheel_name(one.url or "") is not None or "--only-binary" in made.flags:
                continue
            how = COMPILED.get(one.name)
            if one.name == "llama-cpp-python" and _CMAKE_CUDA.search(variables.get("CMAKE_ARGS", "")):
                found.append((run, one.name, True))
            elif one.name == "flash-attn" and variables.get("FLASH_ATTENTION_SKIP_CUDA_BUILD", "").upper() == "TRUE":
                continue
            elif how and not (how == "may" and any(i.kind == "find-links" for i in made.indexes)):
                found.append((run, one.name, how == "must"))
            elif (
                one.url
                and one.url.startswith("git+")
                and re.search(r"(vllm|xformers|apex|deepspeed|bitsandbytes|flash)", one.url)
            ):
                found.append((run, one.name, "apex" in one.url or "vllm" in one.url))
            elif one.name == "deepspeed" and any(k.startswith("DS_BUILD_") and v == "1" for k, v in variables.items()):
                found.append((run, "deepspeed with DS_BUILD_…=1", True))
        for name in made.files:
            needs = view.files.get(name)
            for one in needs.requirements if needs is not None else ():
                if wheel_name(one.url or "") is None and COMPILED.get(one.name) == "must":
                    found.append((run, one.name, True))
        if made.local_paths and ("--no-build-isolation" in made.flags or _forced(run)):
            found.append((run, f"pip install {made.local_paths[0]}", _forced(run)))
        elif "apex" in text and "cuda_ext" in text:
            found.append((run, "apex", True))
    return found


def _forced(run: Run) -> bool:
    variables = {**run.step.variables, **dict(run.command.assigned)}
    return variables.get("FORCE_CUDA") == "1" or "TORCH_CUDA_ARCH_LIST" in variables


def torch_cuda(view: StageView, packages: PackageSet, kb: Knowledge) -> tuple[str | None, str]:
    """wheel_cuda of the stage's torch, and how to name it."""
    torch = packages.get("torch")
    if torch is not None:
        version = exact_version(torch.req)
        if version is None:
            best = newest(kb, torch.req)
            rows = kb.builds("torch", best, machine=packages.machine) if best else ()
            row = next((b for b in rows if b.default), None)
            label_cuda = cuda_of(kb, torch, packages.machine)
            return label_cuda or (row.wheel_cuda if row else None), f"torch {best}" if best else "torch"
        return cuda_of(kb, torch, packages.machine), f"torch {version}"
    for name, version in view.base.facts.frameworks:
        if name == "torch":
            return view.base.facts.base_cuda, f"torch {version} of the base"
    return None, "torch"


def compiler(context: DockerContext, kb: Knowledge) -> Iterator[LintFinding]:
    """nvcc missing, of another CUDA major than torch, or without a list of architectures."""
    for view in context.views:
        packages = package_set(view, context, kb)
        work = [w for w in compiles(view, packages, kb) if view.own(w[0])]
        if not work:
            continue
        has = view.base.has_nvcc
        brought = _nvcc_installed(view)
        cuda, subject = torch_cuda(view, packages, kb)
        torch_based = cuda is not None
        seen: set[str] = set()
        for run, what, sure in work:
            where = (context.file, run.line)
            if what in seen:
                continue
            seen.add(what)
            if has is False and not brought:
                if sure or (view.base.gpu and what not in {"python setup.py"}):
                    severity: LintSeverity = "error" if sure else "warning"
                    if run.command.conditional:
                        severity = "warning"
                    devel = _devel(view, kb)
                    yield finding(
                        "no-nvcc", severity, where,
                        f"{what} is compiled with nvcc, and {view.base.reference} has none: CUDA_HOME or nvcc is not found"
                        if sure else f"{what} is compiled without CUDA here: {view.base.reference} has no nvcc",
                        f"build in a devel stage and copy the result: {devel}" if devel else "build in a devel stage", FLAVOURS,
                    )  # fmt: skip
                continue
            base_cuda = view.base.facts.base_cuda if has else _nvcc_version(view)
            own_framework = any(n == "torch" for n, _ in view.base.facts.frameworks) and packages.get("torch") is None
            torch_tool = what not in {"nvcc", "llama-cpp-python"} and not what.endswith("with CUDA")
            if (
                torch_tool
                and torch_based
                and base_cuda
                and cuda
                and cuda != "cpu"
                and not own_framework
                and major(cuda) != major(base_cuda)
            ):
                known = what in COMPILED or sure
                yield finding(
                    "nvcc-major", "error" if known else "warning", where,
                    f"{what}: nvcc here is CUDA {base_cuda}{' (base_cuda)' if has else ''}, and {subject} is built for CUDA {cuda} (wheel_cuda): "
                    "torch refuses to compile extensions with another major",
                    f"use a base of CUDA {cuda}{_tag(kb, cuda, view)}, or the torch build +cu{base_cuda.replace('.', '')} where there is one", CPP_EXTENSION,
                )  # fmt: skip
            elif torch_tool and cuda == "cpu":
                yield finding(
                    "nvcc-major",
                    "warning",
                    where,
                    f"{what}: {subject} is a CPU build, so the extension gets no CUDA code",
                    "install the cuXXX build first",
                    CPP_EXTENSION,
                )
            if torch_tool and what != "flash-attn" and what != "deepspeed with DS_BUILD_…=1":
                yield from _architectures(run, what, view, where)


def _architectures(run: Run, what: str, view: StageView, where: tuple[str, int | None]) -> Iterator[LintFinding]:
    variables = {**run.step.variables, **dict(run.command.assigned)}
    if "TORCH_CUDA_ARCH_LIST" in variables or "CUDAARCHS" in variables or "TCNN_CUDA_ARCHITECTURES" in variables:
        return
    if any(
        "TORCH_CUDA_ARCH_LIST" in r.command.text or "TORCH_CUDA_ARCH_LIST" in dict(r.command.assigned)
        for r in view.runs
    ):
        return
    yield finding(
        "build-without-gpu", "warning", where,
        f"{what}: docker build has no GPU to look at, so without TORCH_CUDA_ARCH_LIST the list of architectures is empty (IndexError) or "
        "guessed, and CUDA code may be left out",
        'ENV TORCH_CUDA_ARCH_LIST="8.0;8.6;8.9;9.0+PTX" FORCE_CUDA=1 with your cards before it', "https://github.com/mlcommons/training/issues/690",
    )  # fmt: skip


def _nvcc_installed(view: StageView) -> bool:
    for _, made in view.installs:
        if any(
            re.match(
                r"^(cuda-nvcc|cuda-toolkit|cuda-compiler|nvidia-cuda-toolkit|cuda-minimal-build|cuda-\d|cudatoolkit-dev|nvidia-cuda-nvcc|cuda$)",
                t,
            )
            for t in made.texts
        ):
            return True
    return any(re.search(r"cuda_[\d.]+.*\.run|cuda-toolkit|cuda-nvcc", r.command.text) for r in view.runs)


_DISTRIBUTION_NVCC = {
    "ubuntu20.04": "10.1",
    "ubuntu22.04": "11.5",
    "ubuntu24.04": "12.0",
    "debian11": "11.2",
    "debian12": "11.8",
}
"""nvcc of the package nvidia-cuda-toolkit (packages.ubuntu.com, packages.debian.org)."""


def _nvcc_version(view: StageView) -> str | None:
    """CUDA of an nvcc that was installed: cuda-nvcc-12-4, cuda-toolkit-11-8, the distribution's nvidia-cuda-toolkit."""
    for _, made in view.installs:
        for text in made.texts:
            found = re.match(r"^cuda-(?:nvcc|toolkit|compiler|minimal-build)?-?(\d+)-(\d+)", text)
            if found:
                return f"{found[1]}.{found[2]}"
            if text.startswith("nvidia-cuda-toolkit") and view.base.os is not None:
                return _DISTRIBUTION_NVCC.get(view.base.os.id)
    return view.base.facts.base_cuda


def _devel(view: StageView, kb: Knowledge) -> str | None:
    facts = view.base.facts
    if facts.repository.endswith("pytorch/pytorch") and facts.tag:
        return facts.reference.replace("-runtime", "-devel")
    if facts.base_cuda is None:
        return None
    flavour = "cudnn-devel" if facts.flavour and "cudnn" in facts.flavour else "devel"
    return newest_cuda_tag(kb, facts.base_cuda, flavour=flavour, os=facts.os)


def _tag(kb: Knowledge, cuda: str, view: StageView) -> str:
    tag = newest_cuda_tag(kb, cuda, flavour="devel", os=view.base.facts.os) or newest_cuda_tag(
        kb, cuda, flavour="devel"
    )
    return f" ({tag})" if tag else ""


def _bundled(item: Item, kb: Knowledge, machine: str) -> bool:
    """Does the wheel bring its own CUDA?"""
    if item.req.name in {"torch", "vllm", "sglang", "tensorrt-llm", "xformers"}:
        return cuda_of(kb, item, machine) != "cpu"
    build = build_of(kb, item, machine)
    if build is not None:
        return build.device == "cuda" and build.bundles_cuda and build.wheel_cuda is not None
    return item.req.name in {"jax", "tensorflow"} and any(
        e.startswith(("cuda12", "cuda13", "and-cuda")) and "local" not in e for e in item.req.extras
    )


def second_cuda(context: DockerContext, kb: Knowledge) -> Iterator[LintFinding]:
    """Wheels that bring CUDA on a base that has it too: bytes twice, and two cuDNN on the search path."""
    view = context.final
    base = view.base
    if not base.cuda_image or base.flavour in {None, "base"}:
        return
    packages = package_set(view, context, kb)
    bundled = [i for i in packages.items if _bundled(i, kb, packages.machine)]
    where = (context.file, context.dockerfile.root(view.stage).line)
    work = compiles(view, packages, kb)
    needs_system = [
        i
        for i in packages.items
        if (b := build_of(kb, i, packages.machine)) is not None
        and b.device == "cuda"
        and not b.bundles_cuda
        and b.wheel_cuda
    ]
    jit = packages.has("deepspeed", "triton", "flashinfer-python", "vllm", "sglang", "cupy-cuda12x", "cupy-cuda11x")
    if bundled:
        item = bundled[0]
        cuda = cuda_of(kb, item, packages.machine)
        name = f"{item.req.name} {exact_version(item.req) or ''}".strip()
        brought = f"CUDA {cuda} (wheel_cuda)" if cuda else "its own CUDA"
        if base.flavour and "cudnn" in base.flavour:
            path = _ld_path(view)
            shadow = [
                p
                for p in path
                if re.search(
                    r"/usr/lib/x86_64-linux-gnu|/usr/lib/aarch64-linux-gnu|/usr/local/cuda\S*/lib64|/usr/lib64", p
                )
            ]
            build = build_of(kb, item, packages.machine)
            own = build.cudnn if build is not None and build.cudnn else ""
            yield finding(
                "second-cudnn", "warning", where,
                f"the base brings cuDNN {base.facts.cudnn or ''} and {name} brings its own cuDNN{f' {own}' if own else ''}: two cuDNN in one image"
                + (f"; LD_LIBRARY_PATH puts {shadow[0]} first, so the base's shadows the bundled one" if shadow else ""),
                f"use a base flavour without cuDNN{_base_tag(kb, base.facts.base_cuda, base.facts.os)}" + (" and drop LD_LIBRARY_PATH" if shadow else ""),
                "https://github.com/pytorch/pytorch/issues/104591",
            )  # fmt: skip
        if not work and not needs_system and not ("devel" in (base.flavour or "") and jit):
            yield finding(
                "second-cuda", "warning", where,
                f"{name} brings {brought}; the base's CUDA {base.facts.base_cuda} (base_cuda, flavour {base.flavour}) is a second one that is never used",
                f"FROM a base flavour{_base_tag(kb, base.facts.base_cuda, base.facts.os)} or a plain distribution image: 1 to 8 GB less", FLAVOURS,
            )  # fmt: skip
    elif (
        "devel" in (base.flavour or "")
        and not work
        and not jit
        and packages.items
        and len(context.views) == 1
        and not _builds_anything(view)
    ):
        yield finding(
            "devel-unneeded", "note", where, f"the devel flavour ({base.reference}) holds compilers and static libraries, and nothing visible here is compiled",
            "use the runtime or base flavour, or compile in a stage of its own", FLAVOURS,
        )  # fmt: skip


def _builds_anything(view: StageView) -> bool:
    return any(
        r.command.program in {"make", "cmake", "ninja", "gcc", "g++", "nvcc"}
        or "setup.py" in r.command.text
        or (r.install is not None and r.install.local_paths)
        for r in view.runs
    )


def _base_tag(kb: Knowledge, cuda: str | None, os_name: str | None) -> str:
    tag = newest_cuda_tag(kb, cuda, flavour="base", os=os_name) if cuda else None
    return f" ({tag})" if tag else ""


def _ld_path(view: StageView) -> list[str]:
    return [p for p in view.env.get("LD_LIBRARY_PATH", "").split(":") if p]


def search_path(context: DockerContext, kb: Knowledge) -> Iterator[LintFinding]:
    """LD_LIBRARY_PATH and ld.so.conf: stubs, the compat folder, the inherited value thrown away."""
    for view in context.views:
        for one in view.stage.steps:
            made = one.instruction
            if made.keyword == "ENV":
                from gpuimg.project.dockerfile import env_pairs

                for key, raw in env_pairs(made.value):
                    if key == "LD_LIBRARY_PATH":
                        yield from _ld_value(raw, (context.file, made.line), view)
                    if key == "LD_PRELOAD" and "libcuda" in raw:
                        yield finding(
                            "driver-in-image",
                            "warning",
                            (context.file, made.line),
                            "LD_PRELOAD of libcuda overrides the host's driver",
                            "remove it",
                            COMPAT,
                        )
        for run in view.runs:
            if not view.own(run):
                continue
            text = run.command.text
            targets = " ".join(run.command.redirects)
            if "ld.so.conf" in targets + text and "stubs" in text:
                yield finding(
                    "stubs-on-path", "error", (context.file, run.line),
                    "the stub libraries are put on the run-time search path: libcuda.so of stubs/ answers instead of the driver (CUDA_ERROR_STUB_LIBRARY, error 34)",
                    "name stubs at link time only (-L…/stubs or LIBRARY_PATH)", STUBS,
                )  # fmt: skip
            elif (
                re.match(r"(ln|cp)\b", text)
                and re.search(
                    r"stubs/lib(cuda|nvidia-ml)\.so\S*\s+/(usr/lib|lib|usr/local/lib|usr/local/cuda\S*/lib64)", text
                )
                and view.final
                and not _removed_later(view, run)
            ):
                yield finding(
                    "stubs-on-path", "error", (context.file, run.line), "a stub libcuda is put where the loader looks: it answers instead of the driver",
                    "name stubs at link time only, or remove the link in the same RUN", STUBS,
                )  # fmt: skip
            into_cache = "ld.so.conf" in targets + text or run.command.program == "ldconfig"
            if into_cache and re.search(r"/compat/?(\s|$|['\"])", text):
                yield _compat((context.file, run.line), view)
            if (
                re.search(r"\bexport LD_LIBRARY_PATH=", text)
                and run.command.program == "export"
                and not any("profile" in t or "bashrc" in t for t in run.command.redirects)
            ):
                continue


def _removed_later(view: StageView, run: Run) -> bool:
    return any(
        r.step is run.step
        and r.line >= run.line
        and r.command.program in {"rm", "unlink"}
        and "libcuda" in r.command.text
        for r in view.runs
    )


def _compat(where: tuple[str, int | None], view: StageView) -> LintFinding:
    return finding(
        "compat-on-path", "warning", where,
        "the cuda-compat folder is always on the search path: on GeForce cards, and on drivers newer than it, that is error 804 or 803 "
        "(forward compatibility is for data-centre cards)",
        "leave it out: the container runtime puts it in where it helps", COMPAT,
    )  # fmt: skip


def _ld_value(raw: str, where: tuple[str, int | None], view: StageView) -> Iterator[LintFinding]:
    parts = [p for p in raw.split(":") if p]
    if any("stubs" in p for p in parts) and view.final:
        yield finding(
            "stubs-on-path", "error", where, "LD_LIBRARY_PATH holds the stubs folder: its libcuda.so answers instead of the driver (CUDA_ERROR_STUB_LIBRARY)",
            "set LIBRARY_PATH for linking instead", STUBS,
        )  # fmt: skip
    if any(re.search(r"/compat/?$", p) for p in parts):
        yield _compat(where, view)
    inherits = "LD_LIBRARY_PATH" in raw
    if view.base.gpu and not inherits and not any("/usr/local/nvidia" in p for p in parts):
        yield finding(
            "ld-library-path", "warning", where,
            "LD_LIBRARY_PATH is replaced, not extended: what the base put there (/usr/local/nvidia/lib64) is lost",
            f"ENV LD_LIBRARY_PATH={parts[0] if parts else '…'}:$LD_LIBRARY_PATH, or better not at all: wheels find their libraries", FLAVOURS,
        )  # fmt: skip


def build_time_gpu(context: DockerContext, kb: Knowledge) -> Iterator[LintFinding]:
    """Commands that need a GPU while the image is built."""
    for view in context.views:
        for run in view.runs:
            if not view.own(run):
                continue
            text, program = run.command.text, run.command.program
            softened = _softened(run, view)
            if program == "nvidia-smi":
                yield finding(
                    "gpu-at-build", "warning" if softened else "error", (context.file, run.line), "nvidia-smi during docker build: there is no GPU and no driver then, the command is not found",
                    "move it to run time", "https://github.com/NVIDIA/nvidia-docker/wiki/nvidia-docker#can-i-use-the-gpu-during-a-container-build-ie-docker-build",
                )  # fmt: skip
            elif re.search(
                r"assert\s+torch\.cuda\.is_available|assert\s+.*list_physical_devices\(.?GPU|get_device_(name|capability|properties)|torch\.(zeros|ones|rand|randn)\(.*cuda|\.cuda\(\)|device=.?.?cuda",
                text,
            ) and program.startswith("python"):
                yield finding(
                    "gpu-at-build", "warning" if softened else "error", (context.file, run.line), "this needs a GPU while the image is built, and docker build has no GPU",
                    "move it to run time", "https://github.com/NVIDIA/nvidia-docker/wiki/nvidia-docker#can-i-use-the-gpu-during-a-container-build-ie-docker-build",
                )  # fmt: skip
            elif re.search(
                r"torch\.cuda\.is_available|device_count\(\)|list_physical_devices|tf\.test\.is_gpu", text
            ) and program.startswith("python"):
                yield finding(
                    "gpu-at-build",
                    "note",
                    (context.file, run.line),
                    "docker build has no GPU: this prints False or 0 and proves nothing",
                    "check at run time",
                    "https://docs.docker.com/build/building/gpu/",
                )
            if program == "docker" and "--gpus" in text:
                yield finding(
                    "gpu-at-build",
                    "warning",
                    (context.file, run.line),
                    "docker build has no --gpus",
                    "move it to run time",
                    "https://docs.docker.com/build/building/gpu/",
                )


def _softened(run: Run, view: StageView) -> bool:
    if run.command.conditional or not run.command.words:
        return True
    value = run.step.instruction.value
    return re.search(re.escape(run.command.words[0]) + r"[^\n;&|]*\|\|", value) is not None


def llama_cpu(context: DockerContext, kb: Knowledge) -> Iterator[LintFinding]:
    """llama-cpp-python without CMAKE_ARGS is a CPU build."""
    for view in context.views:
        if not view.base.gpu:
            continue
        for run, made in view.installs:
            variables = {**run.step.variables, **dict(run.command.assigned)}
            if any(r.name == "llama-cpp-python" and not r.url for r in made.requirements) and not _CMAKE_CUDA.search(
                variables.get("CMAKE_ARGS", "")
            ):
                if any("abetlen" in i.url or "cu1" in i.url for i in made.indexes):
                    continue
                yield finding(
                    "cpu-wheel", "warning", (context.file, made.line), "llama-cpp-python is compiled for the CPU unless CMAKE_ARGS asks for CUDA",
                    'CMAKE_ARGS="-DGGML_CUDA=on" pip install llama-cpp-python in a devel stage, or its cuXXX index', "https://github.com/abetlen/llama-cpp-python#supported-backends",
                )  # fmt: skip


def build_isolation(context: DockerContext, kb: Knowledge) -> Iterator[LintFinding]:
    """Packages whose setup.py imports torch fail in pip's isolated build, or when torch comes in the same command."""
    for view in context.views:
        packages = package_set(view, context, kb)
        for run, made in view.installs:
            if made.manager not in {"pip", "uv"} or not view.own(run):
                continue
            variables = {**run.step.variables, **dict(run.command.assigned)}
            if "--no-build-isolation" in made.flags or variables.get("PIP_NO_BUILD_ISOLATION"):
                torch_here = any(r.name == "torch" for r in made.requirements)
                before = any(
                    i.name == "torch"
                    for r, m in view.installs
                    if m is not made and r.line <= run.line
                    for i in m.requirements
                ) or (packages.has("torch") and not torch_here)
                if (
                    torch_here
                    and not before
                    and any(
                        r.name in {"flash-attn", "apex", "mamba-ssm", "causal-conv1d"}
                        and wheel_name(r.url or "") is None
                        for r in made.requirements
                    )
                ):
                    yield finding(
                        "build-needs-torch",
                        "error",
                        (context.file, made.line),
                        "torch is installed by the same command that compiles against it: it is not there yet",
                        "install torch in a command before it",
                        "https://github.com/Dao-AILab/flash-attention#installation-and-features",
                    )
                continue
            for one in made.requirements:
                if one.name in {"flash-attn", "mamba-ssm", "causal-conv1d"} and wheel_name(one.url or "") is None:
                    yield finding(
                        "build-needs-torch", "warning", (context.file, made.line), f"the build of {one.name} imports torch, which pip's isolated build does not see: ModuleNotFoundError: No module named 'torch'",
                        f"pip install torch first, then pip install --no-build-isolation {one.name}", "https://github.com/Dao-AILab/flash-attention#installation-and-features",
                    )  # fmt: skip
