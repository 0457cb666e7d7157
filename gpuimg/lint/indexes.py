"""Where packages come from: labels without an index, indexes without the packages, CPU and nightly indexes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpuimg.knowledge import Knowledge
from gpuimg.lint.facts import (
    TORCH_FAMILY,
    Item,
    PackageSet,
    build_of,
    cuda_of,
    cuda_of_label,
    finding,
    holds_label,
    index_urls,
    label_from_indexes,
    labels_of_index,
    major,
    searches_pypi,
    version_of,
)
from gpuimg.nouns import LintFinding
from gpuimg.project.entries import Index, exact_version

LOCAL = "https://packaging.python.org/en/latest/specifications/version-specifiers/#local-version-identifiers"
GET_STARTED = "https://pytorch.org/get-started/previous-versions/"
NOT_ON_PYTORCH = {
    "transformers", "accelerate", "diffusers", "datasets", "peft", "trl", "pandas", "scipy", "scikit-learn", "matplotlib",
    "tensorflow", "jax", "flask", "fastapi", "uvicorn", "gradio", "streamlit", "jupyter", "jupyterlab", "notebook", "opencv-python",
    "opencv-python-headless", "timm", "einops", "wandb", "tensorboard", "pytorch-lightning", "lightning", "sentencepiece", "onnx",
    "onnxruntime-gpu", "onnxruntime", "bitsandbytes", "deepspeed", "ultralytics", "seaborn", "huggingface-hub", "safetensors",
    "tokenizers", "spacy", "nltk", "omegaconf", "hydra-core", "albumentations", "kornia", "mmcv", "mmdet", "ray", "boto3", "vllm",
    "openai-whisper", "faster-whisper", "sentence-transformers", "langchain", "openai", "pydantic", "flash-attn",
}  # fmt: skip
"""Packages PyTorch's own index does not hold (it mirrors only torch's dependencies)."""


def labels(packages: PackageSet, kb: Knowledge) -> Iterator[LintFinding]:
    """``torch==2.5.1+cu124`` needs an index that holds +cu124: PyPI takes no local labels."""
    if packages.kind == "lock":
        return
    for item in packages.items:
        one = item.req
        if one.local is None or one.url or not re.match(r"^(cu\d|cuda\d|cpu|rocm|xpu)", one.local):
            continue
        usable = [i for i in item.indexes if not i.packages or one.name in i.packages]
        held = [holds_label(i, one.local) for i in usable]
        if any(h is True for h in held):
            yield from _published(item, kb)
            continue
        rows = kb.builds(one.name, exact_version(one)) if exact_version(one) else ()
        build = next((b for b in rows if b.local == one.local), None)
        url = (build.index_url if build else None) or f"https://download.pytorch.org/whl/{one.local}"
        if one.name in {"jax", "jaxlib"}:
            url = "https://storage.googleapis.com/jax-releases/jax_cuda_releases.html (with -f)"
        if any(h is None for h in held):
            continue
        yield from _missing_index(item, url, usable)


def index_lacks_version(packages: PackageSet, kb: Knowledge) -> Iterator[LintFinding]:
    """``torch==2.6.0`` with the cu121 index: that index has no 2.6.0, so PyPI's build comes instead, or nothing."""
    for item in packages.items:
        one = item.req
        version = exact_version(one)
        if (
            one.name not in {"torch", "torchvision"}
            or version is None
            or one.local is not None
            or one.url
            or packages.kind == "lock"
        ):
            continue
        label = label_from_indexes(item)
        rows = kb.builds(one.name, version, machine=packages.machine)
        made = sorted({b.local for b in rows if b.local and not b.local.startswith("rocm")})
        if (
            label is None
            or not re.match(r"cu\d", label)
            or len(made) < 2
            or label in made
            or any("nightly" in i.url for i in item.indexes)
        ):
            continue
        default = next((b.wheel_cuda for b in rows if b.default), None)
        if searches_pypi(item):
            yield finding(
                "index-lacks-version", "warning", one,
                f"the {label} index has no {one.name} {version}: pip takes PyPI's build instead, made for CUDA {default} (wheel_cuda)",
                f"builds of {version}: {', '.join(made)}", GET_STARTED,
            )  # fmt: skip
        else:
            yield finding(
                "index-lacks-version", "error", one, f"the {label} index has no {one.name} {version}, and nothing else is searched: no matching distribution",
                f"builds of {version}: {', '.join(made)}", GET_STARTED,
            )  # fmt: skip


def paddle_posts(packages: PackageSet, kb: Knowledge) -> Iterator[LintFinding]:
    """Paddle names the CUDA in the version (2.4.2.post117): those builds are on Paddle's own pages only."""
    for item in packages.items:
        one = item.req
        if (
            one.name != "paddlepaddle-gpu"
            or not re.search(r"\.post\d{2,3}$", one.specifier)
            or one.url
            or packages.kind == "lock"
        ):
            continue
        if all(holds_label(i, "post") is False for i in item.indexes):
            yield finding(
                "missing-index", "error", one, f"{one.name}{one.specifier} is not on PyPI: builds with a CUDA in their version are on Paddle's own pages",
                "add -f https://www.paddlepaddle.org.cn/whl/linux/mkl/avx/stable.html", "https://www.paddlepaddle.org.cn/install/old",
            )  # fmt: skip


def _missing_index(item: Item, url: str, usable: list[Index]) -> Iterator[LintFinding]:
    one = item.req
    seen = f"only {index_urls(usable)} is searched" if usable else "no index is named, and PyPI takes no +labels"
    yield finding(
        "missing-index", "error", one,
        f"{one.name}{one.specifier}+{one.local} is on no index pip is told to search ({seen}): no matching distribution",
        f"add --extra-index-url {url}", LOCAL,
    )  # fmt: skip


def _published(item: Item, kb: Knowledge) -> Iterator[LintFinding]:
    """The label's index is there, but was that build ever made?"""
    one = item.req
    version = exact_version(one)
    if version is None or one.name not in {"torch", "torchvision", "torchaudio"} or one.local is None:
        return
    rows = kb.builds(one.name, version)
    made = sorted({b.local for b in rows if b.local and not b.local.startswith("rocm")})
    if made and one.local.startswith("cu") and one.local not in made and len(made) > 1:
        yield finding(
            "no-such-build", "error", one, f"{one.name} {version} was never built as +{one.local}",
            f"builds of {version}: {', '.join('+' + m for m in made)}", GET_STARTED,
        )  # fmt: skip


def only_pytorch_index(packages: PackageSet, kb: Knowledge) -> Iterator[LintFinding]:
    """``--index-url https://download.pytorch.org/whl/…`` replaces PyPI: what that index lacks cannot be found."""
    for item in packages.items:
        one = item.req
        main = [i for i in item.indexes if i.kind == "index-url"]
        if not main or one.url or one.name not in NOT_ON_PYTORCH or item.manager not in {"pip", "uv"}:
            continue
        if not re.search(r"download(-r2)?\.pytorch\.org/whl", main[-1].url):
            continue
        if any(i.kind in {"extra-index-url", "find-links"} and "pytorch.org" not in i.url for i in item.indexes):
            continue
        yield finding(
            "index-lacks-package", "error", one,
            f"--index-url {main[-1].url} replaces PyPI, and PyTorch's index does not hold {one.name}",
            "use --extra-index-url for it, or install torch in a command of its own", "https://pip.pypa.io/en/stable/cli/pip_install/#install-index-url",
        )  # fmt: skip


def cpu_builds(packages: PackageSet, kb: Knowledge, *, gpu: bool) -> Iterator[LintFinding]:
    """CPU wheels where a GPU is meant to be used."""
    for item in packages.items:
        one = item.req
        if item.conditional:
            continue
        if one.name in {"tensorflow-cpu", "faiss-cpu"} and gpu:
            better = {"tensorflow-cpu": "tensorflow[and-cuda]", "faiss-cpu": "faiss-gpu-cu12"}[one.name]
            yield finding(
                "cpu-wheel",
                "warning",
                one,
                f"{one.name} does not use a GPU, in an image made for one",
                f"use {better}, or a plain base image",
                f"https://pypi.org/project/{one.name}/",
            )
        if one.name == "onnxruntime" and gpu and not packages.has("onnxruntime-gpu"):
            yield finding(
                "cpu-wheel",
                "warning",
                one,
                "onnxruntime is the CPU build, in an image made for a GPU",
                "use onnxruntime-gpu",
                "https://onnxruntime.ai/docs/install/",
            )
        if one.name in TORCH_FAMILY and cuda_of(kb, item, packages.machine) == "cpu" and one.local is None:
            build = build_of(kb, item, packages.machine)
            label_index = next((i for i in item.indexes if labels_of_index(i) == ("cpu",)), None)
            if label_index is not None:
                if gpu:
                    yield finding(
                        "cpu-wheel",
                        "warning",
                        one,
                        f"{one.name} comes from {label_index.url}: a CPU build, in an image made for a GPU",
                        "use the cuXXX index of the CUDA you want",
                        GET_STARTED,
                    )
            elif build is not None and packages.machine == "aarch64" and one.name == "torch":
                yield finding(
                    "cpu-wheel",
                    "warning",
                    one,
                    f"PyPI's {one.name} {build.version} for aarch64 is a CPU-only build",
                    "use the cuXXX index (2.7 and later), or NVIDIA's image",
                    build.source or GET_STARTED,
                )
        elif one.local == "cpu" and gpu and one.name in TORCH_FAMILY:
            yield finding(
                "cpu-wheel",
                "warning",
                one,
                f"{one.name}{one.specifier}+cpu is a CPU build, in an image made for a GPU",
                "use a +cuXXX build",
                GET_STARTED,
            )


def unsafe_indexes(packages: PackageSet, kb: Knowledge) -> Iterator[LintFinding]:
    """Nightly indexes and plain-http ones."""
    seen: set[str] = set()
    for item in packages.items:
        for index in item.indexes:
            if index.url in seen:
                continue
            seen.add(index.url)
            where = (index.file or item.req.file or "", index.line)
            if "/nightly" in index.url:
                yield finding(
                    "nightly",
                    "warning",
                    where,
                    f"{index.url} holds nightly builds: they are removed after some weeks and change every day",
                    "pin a released version from its index",
                    GET_STARTED,
                )
            if re.search(r"torch_stable\.html", index.url) and item.req.name == "torch":
                version = version_of(exact_version(item.req))
                if version is not None and version.release >= (2, 1):
                    yield finding(
                        "old-links-page",
                        "warning",
                        where,
                        f"torch_stable.html does not list new versions such as {version}",
                        f"use --extra-index-url https://download.pytorch.org/whl/{item.req.local or 'cu121'}",
                        GET_STARTED,
                    )


def extension_pages(packages: PackageSet, kb: Knowledge) -> Iterator[LintFinding]:
    """``-f …/torch-2.0.0+cu117.html`` and the like name the torch their wheels were compiled for: it must be the one here."""
    torch = packages.torch
    version = version_of(exact_version(torch.req)) if torch else None
    if torch is None or version is None:
        return
    cuda = cuda_of(kb, torch, packages.machine)
    seen: set[str] = set()
    for item in packages.items:
        for index in item.indexes:
            if index.url in seen:
                continue
            seen.add(index.url)
            found = re.search(r"torch[-_]?(\d+\.\d+)(?:\.(\d+|x))?", index.url.rsplit("whl/", 1)[-1])
            if not found or re.search(r"download\.pytorch\.org", index.url):
                continue
            where = (index.file or torch.req.file or "", index.line)
            wanted = version_of(found[1])
            if wanted is not None and wanted.release[:2] != version.release[:2]:
                yield finding(
                    "extension-abi", "error", where,
                    f"{index.url} holds extensions compiled for torch {found[1]}, and torch {version} is asked for: undefined symbols at import",
                    f"use the page for torch {version.release[0]}.{version.release[1]}", "https://pytorch-geometric.readthedocs.io/en/latest/install/installation.html",
                )  # fmt: skip
                continue
            label = re.search(r"(cu\d{2,3}|cpu)(?![\d])", index.url)
            page_cuda = "cpu" if label and label[1] == "cpu" else cuda_of_label(label[1]) if label else None
            if (
                page_cuda
                and cuda
                and page_cuda != cuda
                and (page_cuda == "cpu" or cuda == "cpu" or major(page_cuda) != major(cuda))
            ):
                yield finding(
                    "extension-abi", "error", where,
                    f"{index.url} holds extensions for {'CPU' if page_cuda == 'cpu' else 'CUDA ' + page_cuda}, and torch {version} is "
                    f"{'a CPU build' if cuda == 'cpu' else 'built for CUDA ' + cuda} (wheel_cuda)",
                    "use the page of torch's own CUDA", "https://pytorch-geometric.readthedocs.io/en/latest/install/installation.html",
                )  # fmt: skip
            elif page_cuda and cuda and page_cuda != cuda:
                yield finding(
                    "extension-abi", "warning", where,
                    f"{index.url} holds extensions for CUDA {page_cuda}, torch {version} is built for CUDA {cuda} (wheel_cuda)",
                    "use the page of torch's own CUDA", "https://pytorch-geometric.readthedocs.io/en/latest/install/installation.html",
                )  # fmt: skip


def plain_http(packages: PackageSet, kb: Knowledge) -> Iterator[LintFinding]:
    """pip ignores an index that comes without TLS unless its host is trusted; some old mirrors are gone."""
    seen: set[str] = set()
    for item in packages.items:
        for index in item.indexes:
            if index.url in seen:
                continue
            seen.add(index.url)
            where = (index.file or item.req.file or "", index.line or item.req.line)
            host = re.match(r"http://([\w.-]+)", index.url)
            local = host is not None and re.match(r"(localhost|127\.|10\.|192\.168\.|172\.)", host[1]) is not None
            if (
                host
                and host[1] not in packages.trusted_hosts
                and item.manager == "pip"
                and not (local and host[1] in {"localhost", "127.0.0.1"})
            ):
                yield finding(
                    "untrusted-index", "error" if index.kind == "index-url" else "warning", where,
                    f"{index.url} has no TLS and is not trusted: pip ignores it and finds nothing", f"use https://, or --trusted-host {host[1]}",
                    "https://pip.pypa.io/en/stable/cli/pip/#cmdoption-trusted-host",
                )  # fmt: skip
            if re.search(r"pypi\.douban\.com|pypi\.doubanio\.com", index.url):
                yield finding(
                    "dead-mirror",
                    "warning",
                    where,
                    f"{index.url}: that mirror was closed",
                    "https://pypi.tuna.tsinghua.edu.cn/simple",
                    "https://mirrors.tuna.tsinghua.edu.cn/help/pypi/",
                )
