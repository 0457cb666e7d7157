"""One CUDA, one cuDNN, one flavour in an environment: what packages bring, and what the base must give."""

from __future__ import annotations

import re
from collections.abc import Iterator

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from gpuimg.knowledge import Knowledge
from gpuimg.knowledge.images import newest_cuda_tag
from gpuimg.knowledge.rules.companions import pins
from gpuimg.knowledge.rules.one_cuda import judge_base_cuda, judge_base_cudnn
from gpuimg.knowledge.rules.outcome import Outcome
from gpuimg.knowledge.tables import Build
from gpuimg.lint.facts import (
    Item,
    PackageSet,
    allows,
    build_of,
    cuda_of,
    finding,
    major,
    newest,
    version_of,
)
from gpuimg.nouns import LintFinding, LintSeverity
from gpuimg.project.entries import exact_version

TORCH_LINKED = ("torchvision", "torchaudio", "torchtext", "xformers")


def flavours(packages: PackageSet, kb: Knowledge) -> Iterator[LintFinding]:
    """torch and what links against it must be builds of one CUDA (or all CPU)."""
    torch = packages.get("torch")
    if torch is None:
        return
    cuda = cuda_of(kb, torch, packages.machine)
    if cuda is None:
        return
    for name in TORCH_LINKED:
        other = packages.get(name)
        if other is None or other.conditional or torch.conditional:
            continue
        theirs = cuda_of(kb, other, packages.machine)
        labelled = torch.req.local is not None or other.req.local is not None or torch.group != other.group
        if theirs is None or theirs == cuda or name == "torchtext":
            continue
        if not labelled and name != "xformers":
            continue  # PyPI's own pairs are held together by their pins
        if name == "torchaudio" and (torch.req.local is None or other.req.local is None):
            continue  # old torchaudio has no CUDA code, and its unlabelled wheel serves every torch
        a, b = _flavour(cuda), _flavour(theirs)
        if "cpu" in (cuda, theirs):
            if name == "torchvision" and packages.machine == "x86_64" and labelled:
                yield finding(
                    "flavour-mix", "error", other.req,
                    f"torch is {a} and {name} {b}: they must be of the same flavour ('operator torchvision::nms does not exist')",
                    f"take both as +{torch.req.local or other.req.local or 'cpu'} from the same index", "https://github.com/pytorch/pytorch/issues/122494",
                )  # fmt: skip
            elif labelled:
                yield finding(
                    "flavour-mix", "error" if name == "torchaudio" else "warning", other.req, f"torch is {a} and {name} {b}: they must match",
                    "take both from the same index", "https://pytorch.org/get-started/previous-versions/",
                )  # fmt: skip
            continue
        if name == "xformers" and other.req.local is None and torch.req.local is None:
            yield finding(
                "flavour-mix", "warning", other.req, f"PyPI's xformers {exact_version(other.req)} is {b}, and PyPI's torch {a}",
                f"take both from one index: https://download.pytorch.org/whl/cu{theirs.replace('.', '')}", "https://github.com/facebookresearch/xformers#installing-xformers",
            )  # fmt: skip
        elif major(theirs) != major(cuda):
            yield finding(
                "flavour-mix", "error", other.req, f"torch is {a} and {name} {b}: two CUDA majors do not match",
                f"take both from the same index (+{torch.req.local or 'cuXXX'})", "https://pytorch.org/get-started/previous-versions/",
            )  # fmt: skip
        elif labelled and "." in theirs and "." in cuda:
            severity: LintSeverity = "error" if name == "torchvision" and "." in cuda else "warning"
            yield finding(
                "flavour-mix", severity, other.req,
                f"torch is {a} and {name} {b}: torchvision refuses another CUDA minor than torch's at import"
                if name == "torchvision" else f"torch is {a} and {name} {b}: builds of one release, but of different CUDA",
                f"take both from the same index (+{torch.req.local or 'cuXXX'})", "https://github.com/pytorch/vision/blob/main/torchvision/extension.py",
            )  # fmt: skip


def _flavour(cuda: str) -> str:
    return "a CPU build" if cuda == "cpu" else f"built for CUDA {cuda} (wheel_cuda)"


def _chosen(kb: Knowledge, item: Item, packages: PackageSet) -> Build | None:
    """The build of an exact pin, or of the newest version an open requirement allows; None when another index decides."""
    if item.req.name not in {"torch", "torchvision", "torchaudio"} and any(
        re.search(rf"{re.escape(item.req.name.removesuffix('-gpu'))}[-_]cuda|cuda[-_]?1[123]", i.url)
        for i in item.indexes
    ):
        return None
    build = build_of(kb, item, packages.machine)
    if build is not None or exact_version(item.req) is not None:
        return build
    version = newest(kb, item.req)
    if version is None:
        return None
    rows = kb.builds(item.req.name, version, machine=packages.machine)
    if item.req.extras:
        named = next((b for b in rows if b.extra in item.req.extras), None)
        if named is not None:
            return named
    return next((b for b in rows if b.default), rows[0] if rows else None)


def two_cudnn(packages: PackageSet, kb: Knowledge) -> Iterator[LintFinding]:
    """Frameworks in one environment that want different cuDNN."""
    torch = packages.torch
    torch_build = _chosen(kb, torch, packages) if torch else None
    if torch is None or torch_build is None or torch_build.device == "cpu" or not torch_build.cudnn:
        return
    pinned = torch_build.cudnn
    for name in (
        "jax",
        "tensorflow",
        "tensorflow-gpu",
        "onnxruntime-gpu",
        "paddlepaddle-gpu",
        "ctranslate2",
        "faster-whisper",
    ):
        other = packages.get(name)
        if other is None:
            continue
        build = _chosen(kb, other, packages)
        if name == "faster-whisper":
            build = None if packages.get("ctranslate2") else _ctranslate2(kb, other, build)
        if build is None or not build.cudnn or build.device == "cpu":
            continue
        if name == "jax" and not other.req.extras:
            continue
        yield from _cudnn_pair(torch_build, pinned, other, build, packages)
    for item in packages.items:
        found = re.fullmatch(r"nvidia-cudnn-cu(\d\d)", item.req.name)
        version = exact_version(item.req)
        if not (found and version and re.fullmatch(r"\d+(\.\d+){3}", pinned)):
            continue
        if found[1] == str(major(torch_build.wheel_cuda)) and version_of(version) != version_of(pinned):
            yield finding(
                "two-cudnn", "error" if item.group == torch.group else "warning", item.req,
                f"torch {torch_build.version} pins cuDNN {pinned}, and {item.req.name} {version} is asked for", f"{item.req.name}=={pinned}, or leave it to torch", torch_build.source,
            )  # fmt: skip


def _cudnn_pair(torch: Build, pinned: str, other: Item, build: Build, packages: PackageSet) -> Iterator[LintFinding]:
    name, theirs = other.req.name, build.cudnn or ""
    shown = name if name == build.framework else f"{name} ({build.framework} {build.version})"
    shown = f"{name} {build.version}" if name == build.framework else shown
    left, right = major(re.sub(r"^[^\d]*", "", pinned)), major(re.sub(r"^[^\d]*", "", theirs))
    subject = f"torch {torch.version} brings cuDNN {pinned}"
    exact_pin = re.fullmatch(r"\d+(\.\d+){2,3}", pinned) is not None
    if re.match(r"[<>=~!]", theirs):
        try:
            ok = not exact_pin or SpecifierSet(theirs).contains(pinned)
        except InvalidSpecifier:
            ok = True
        low = _floor(theirs)
        if exact_pin and low and build.how.get("cudnn") in {"range", "joined"} and not ok:
            together = build.bundles_cuda and torch.bundles_cuda
            yield finding(
                "two-cudnn", "error" if together and packages.get("torch") is not None and packages.get("torch").group == other.group else "warning",  # type: ignore[union-attr]
                other.req, f"{subject} exactly, and {shown} wants cuDNN {theirs}: one of them gets the wrong cuDNN",
                f"use versions whose cuDNN ranges meet, or one environment for each of torch and {name}", build.source,
            )  # fmt: skip
        return
    both_exact = exact_pin and re.fullmatch(r"\d+(\.\d+){3}", theirs) is not None
    if both_exact and left == right and theirs != pinned and build.bundles_cuda and torch.bundles_cuda:
        mine = packages.get("torch")
        yield finding(
            "two-cudnn", "error" if mine is not None and mine.group == other.group else "warning", other.req,
            f"{subject} exactly, and {shown} pins cuDNN {theirs}: pip cannot install both",
            f"use versions that pin the same cuDNN, or one environment for each of torch and {name}", build.source,
        )  # fmt: skip
        return
    if left is not None and right is not None and left != right:
        # ctranslate2 loads torch's cuDNN: without a system cuDNN there is no other one
        alone = (
            name in {"ctranslate2", "faster-whisper"} and packages.base is not None and packages.base_torch is not None
        )
        yield finding(
            "two-cudnn", "error" if alone else "warning", other.req,
            f"{subject}, and {shown} wants cuDNN {theirs}: two cuDNN majors in one process", f"use versions of torch and {name} made for one cuDNN major, or two environments", build.source,
        )  # fmt: skip


def _floor(specifier: str) -> str | None:
    found = re.search(r"(?:>=|~=)\s*([\d.]+)", specifier)
    return found[1] if found else None


def bitsandbytes(packages: PackageSet, kb: Knowledge) -> Iterator[LintFinding]:
    """bitsandbytes holds one library for each CUDA, and loads the one of torch's wheel_cuda."""
    torch, item = packages.torch, packages.get("bitsandbytes")
    version = exact_version(item.req) if item else None
    if torch is None or item is None or version is None or item.conditional or exact_version(torch.req) is None:
        return
    cuda = cuda_of(kb, torch, packages.machine)
    build = build_of(kb, item, packages.machine)
    if (
        cuda in {None, "cpu"}
        or "." not in str(cuda)
        or build is None
        or not build.cuda_builds
        or cuda in build.cuda_builds
    ):
        return
    better = [
        v for v in kb.versions("bitsandbytes") if any(cuda in b.cuda_builds for b in kb.builds("bitsandbytes", v))
    ]
    yield finding(
        "bitsandbytes-cuda", "error", item.req,
        f"bitsandbytes {version} has libraries for CUDA {', '.join(build.cuda_builds)}, none for torch's {cuda} (wheel_cuda): it falls back to the CPU or fails",
        f"bitsandbytes>={better[0]}" if better else "another build of torch", build.source,
    )  # fmt: skip


def exclusive(packages: PackageSet, kb: Knowledge) -> Iterator[LintFinding]:
    """Packages that overwrite or shadow each other."""
    if packages.kind == "lock":
        return
    both = packages.get("onnxruntime"), packages.get("onnxruntime-gpu")
    if (
        both[0] is not None
        and both[1] is not None
        and not (both[0].conditional or both[1].conditional or both[0].req.marker or both[1].req.marker)
    ):
        yield finding(
            "two-of-a-kind", "warning" if packages.kind == "lock" else "error", both[0].req,
            "onnxruntime and onnxruntime-gpu are the same module: the CPU one overwrites the GPU one's files, and CUDA is gone",
            "keep onnxruntime-gpu only", "https://onnxruntime.ai/docs/install/#requirements",
        )  # fmt: skip
    cupy = [
        i
        for i in packages.items
        if re.fullmatch(r"cupy(-cuda\d+x?)?", i.req.name) and not i.conditional and not i.req.marker
    ]
    if len({i.req.name for i in cupy}) > 1:
        yield finding(
            "two-of-a-kind", "error", cupy[-1].req, f"{' and '.join(sorted({i.req.name for i in cupy}))} are the same module: only one may be installed",
            "keep the one of your CUDA major", "https://docs.cupy.dev/en/stable/install.html#multiple-cupy-packages-are-installed",
        )  # fmt: skip
    tf = [
        i
        for i in packages.items
        if i.req.name in {"tensorflow", "tensorflow-gpu", "tensorflow-cpu"} and not i.conditional and not i.req.marker
    ]
    if len({i.req.name for i in tf}) > 1:
        yield finding(
            "two-of-a-kind", "warning", tf[-1].req, f"{' and '.join(sorted({i.req.name for i in tf}))} install the same module: the later one wins",
            "keep tensorflow (with [and-cuda] for GPUs)", "https://www.tensorflow.org/install/pip",
        )  # fmt: skip
    cv = [i for i in packages.items if i.req.name.startswith("opencv-") and not i.conditional and not i.req.marker]
    if len({i.req.name for i in cv}) > 1:
        yield finding(
            "two-of-a-kind", "warning", cv[-1].req, f"{' and '.join(sorted({i.req.name for i in cv}))} share the module cv2: only one may be installed",
            "keep opencv-python-headless in containers", "https://github.com/opencv/opencv-python#installation-and-usage",
        )  # fmt: skip
    paddle = packages.get("paddlepaddle"), packages.get("paddlepaddle-gpu")
    if paddle[0] is not None and paddle[1] is not None:
        yield finding(
            "two-of-a-kind", "error", paddle[0].req, "paddlepaddle and paddlepaddle-gpu are the same module: the CPU one overwrites the GPU one",
            "keep paddlepaddle-gpu only", "https://www.paddlepaddle.org.cn/install/quick",
        )  # fmt: skip


def cuda_majors(packages: PackageSet, kb: Knowledge) -> Iterator[LintFinding]:
    """Wheels of two CUDA majors in one environment."""
    torch = packages.get("torch")
    cuda = cuda_of(kb, torch, packages.machine) if torch else None
    if torch is None or cuda in {None, "cpu"}:
        return
    for item in packages.items:
        name = item.req.name
        found = re.fullmatch(
            r"(?:cupy-cuda|nvidia-[a-z-]+-cu|tensorrt-cu|faiss-gpu-cu|cudf-cu|cuml-cu|onnxruntime-cu|mxnet-cu|dgl-cu)(\d\d)\d?x?",
            name,
        )
        theirs = int(found[1]) if found else None
        if (
            theirs is None
            and name
            in {
                "onnxruntime-gpu", "ctranslate2", "faster-whisper", "vllm", "sgl-kernel", "tensorflow", "tensorflow-gpu", "jax",
                "paddlepaddle-gpu",
            }
        ):  # fmt: skip
            if exact_version(item.req) is None and item.group == torch.group and name == "vllm":
                continue  # pip looks for one that accepts this torch
            build = _chosen(kb, item, packages)
            if name == "faster-whisper":
                build = _ctranslate2(kb, item, build)
            theirs = (
                major(build.wheel_cuda) if build is not None and build.device != "cpu" and build.wheel_cuda else None
            )
        if theirs is not None and theirs != major(cuda):
            yield finding(
                "two-cuda", "error" if name in {"vllm", "sgl-kernel"} else "warning", item.req,
                f"{name} {exact_version(item.req) or ''} is for CUDA {theirs}, and torch {exact_version(torch.req) or ''} for CUDA {cuda} (wheel_cuda): two CUDA majors in one environment".replace("  ", " "),
                "take builds of one CUDA major", "https://docs.nvidia.com/deploy/cuda-compatibility/",
            )  # fmt: skip


def _ctranslate2(kb: Knowledge, item: Item, build: Build | None) -> Build | None:
    """The ctranslate2 that faster-whisper brings: the newest its own pin allows."""
    wanted = next((r for r in (build.requires if build else ()) if r.startswith("ctranslate2")), "ctranslate2")
    specifier = re.sub(r"^ctranslate2", "", wanted)
    fitting = [v for v in kb.versions("ctranslate2") if allows(specifier, v)]
    rows = kb.builds("ctranslate2", fitting[-1]) if fitting else ()
    return rows[0] if rows else None


def system_cuda(packages: PackageSet, kb: Knowledge) -> Iterator[LintFinding]:
    """Wheels that take CUDA and cuDNN from the system, against the base image's."""
    base = packages.base
    if base is None or base.facts.kind not in {"cuda", "distribution"}:
        return
    if any(i.manager == "conda" for i in packages.items):
        return
    brings = any(re.match(r"nvidia-(cublas|cuda-runtime)(-cu\d\d)?$", i.req.name) for i in packages.items)
    torch = packages.get("torch")
    torch_cuda = cuda_of(kb, torch, packages.machine) if torch else None
    seen: set[str] = set()
    for item in packages.items:
        name = item.req.name
        if item.conditional or item.req.url:
            continue
        build = _chosen(kb, item, packages)
        subject = f"{name} {build.version}" if build else name
        if name == "faster-whisper":
            if packages.get("ctranslate2"):
                continue
            build = _ctranslate2(kb, item, build)
            subject = f"{name} (ctranslate2 {build.version})" if build else name
        if build is None or build.device == "cpu" or build.bundles_cuda or build.wheel_cuda is None or subject in seen:
            continue
        if build.framework in {"bitsandbytes", "dgl", "llama-cpp-python"} or build.extra is not None:
            continue
        if brings or (torch_cuda not in {None, "cpu"} and major(torch_cuda) == major(build.wheel_cuda)):
            continue
        seen.add(subject)
        where = base.reference
        made = list(judge_base_cuda(build, base.facts.base_cuda, subject=subject, where=where, flavour=base.flavour))
        cudnn = judge_base_cudnn(build, base.facts.cudnn, subject=subject, where=where) if base.facts.cudnn else None
        if cudnn is not None:
            made.append(cudnn)
        needs_plain = base.facts.base_cuda is None
        for outcome in made:
            yield from _as_lint(outcome, item, build, kb, base_os=base.os.id if base.os else None, soft=needs_plain)


def _as_lint(
    outcome: Outcome, item: Item, build: Build, kb: Knowledge, *, base_os: str | None, soft: bool
) -> Iterator[LintFinding]:
    verdict = outcome.finding.verdict
    if verdict not in {"no", "warn"}:
        return
    # without any CUDA in a plain base the package still runs on the CPU, and that may be meant
    severity: LintSeverity = "error" if verdict == "no" and not soft else "warning"
    tag = newest_cuda_tag(kb, build.wheel_cuda or "", flavour="cudnn-runtime", os=base_os) if build.wheel_cuda else None
    tag = tag or (newest_cuda_tag(kb, build.wheel_cuda, flavour="cudnn-runtime") if build.wheel_cuda else None)
    fix = outcome.finding.fix or "use another base"
    yield finding(
        "system-cuda",
        severity,
        item.req,
        outcome.finding.evidence,
        f"{fix}{f': {tag}' if tag else ''}",
        outcome.finding.source,
    )


def replaced_framework(packages: PackageSet, kb: Knowledge) -> Iterator[LintFinding]:
    """pip replaces the framework that the base image was chosen for."""
    base = packages.base
    if base is None:
        return
    inside = dict(base.facts.frameworks)
    for name in ("torch", "tensorflow", "vllm"):
        have, item = inside.get(name), packages.get(name)
        if have is None or item is None or item.conditional:
            continue
        version = exact_version(item.req)
        same = version is not None and version_of(version) == version_of(have)
        if base.facts.kind == "ngc" and (item.req.specifier or item.req.local):
            yield finding(
                "replaced-framework", "warning", item.req,
                f"pip replaces NVIDIA's own {name} build of {base.reference} by the published wheel: its extensions (apex, flash-attn, …) "
                "no longer match", f"leave {name} out, or start from a plain base", "https://docs.nvidia.com/deeplearning/frameworks/pytorch-release-notes/",
            )  # fmt: skip
        elif version is not None and not same:
            yield finding(
                "replaced-framework", "warning", item.req, f"the base holds {name} {have}, and {version} is installed over it: two copies in the image",
                f"take the image with {name} {version}, or a plain base", "https://hub.docker.com/r/pytorch/pytorch/tags",
            )  # fmt: skip
    torch = packages.base_torch
    pinned = exact_version(torch.req) if torch and packages.get("torch") is None else None
    if torch is None or pinned is None:
        return
    for item in packages.items:
        build = build_of(kb, item, packages.machine)
        wanted = pins(build).get("torch") if build is not None else None
        if wanted is not None and len(wanted) and not wanted.contains(pinned, prereleases=True):
            yield finding(
                "replaced-framework", "warning", item.req,
                f"{item.req.name} {exact_version(item.req)} requires torch{wanted}: pip replaces the torch {pinned} of {base.reference}",
                f"take the image with torch{wanted}, or another {item.req.name}", build.source if build else "https://pypi.org/",
            )  # fmt: skip
