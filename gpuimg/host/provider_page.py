"""A provider's description page or offer as text, English or Chinese.

Such pages say "CUDA" and mean one of three things; what cannot be told apart is asked for, not guessed.
"""

from __future__ import annotations

import re

from gpuimg.host.readings import Readings
from gpuimg.nouns import Gpu, HostFinding, Requirement

_GPU = re.compile(
    r"(?:(?:显卡|GPU)\s*(?:型号|类型|model|type|name)?|卡型|机型|Graphics card|Accelerator)\s*[:：]\s*"
    r"(?P<name>[^\n,，;；|]+)",
    re.I,
)
_CARD = re.compile(
    r"(?<![\w.])(?:(?P<count>\d{1,2})\s*[x×*卡张块]\s*)?(?P<name>(?:NVIDIA\s+)?(?:GeForce\s+)?"
    r"(?:RTX\s*(?:PRO\s*)?[A-Z]?\d{4}(?:\s*(?:Ti|SUPER|D|Ada|Laptop))*|[34]0[6-9]0(?:\s*Ti|D)?|50[6-9]0(?:\s*Ti|D)?|"
    r"(?:Tesla\s*)?(?:V100|P100|T4|P40|P4|K80|M40)|A(?:10G?|16|30|40|100|800|2|4000|5000|6000)|"
    r"H(?:100|200|800|20)|B[23]00|GB[23]00|GH200|L(?:4|20|40S?))(?:[- ](?:SXM\d?|PCIe|NVL))?(?:[- ]?\d{2,3}\s*GB?)?)"
    r"(?:\s*[x×*]\s*(?P<after>\d{1,2}))?(?![\w.])",
    re.I,
)
_MEMORY = re.compile(
    r"(?:显存|VRAM|GPU memory|Memory per GPU|GPU RAM)\s*(?:大小|容量)?\s*[:：]?\s*(\d+(?:\.\d+)?)\s*G", re.I
)
_MEMORY_AFTER = re.compile(r"^\s*[(/（\[|,-]?\s*(\d{1,3}(?:\.\d+)?)\s*G(?:i?B)?\b", re.I)
_COUNT_AFTER = re.compile(r"^[^\n;；,，|]{0,24}?[x×*]\s*(\d{1,2})(?![\d.])", re.I)
_FOREIGN = re.compile(
    r"(?:AMD )?Instinct\s*MI\d+\w*|\bMI[23]\d\d\w?\b|(?:Huawei |华为)?(?:昇腾|Ascend)\s*\d*\w*|Gaudi\s*\d?|\bTPU\s*v\d\w*|"
    r"寒武纪\s*\w*|\bMLU\s*\d+\w*|摩尔线程\s*\w*|\bMTT S\d+|海光\s*DCU|Radeon\s*(?:RX|Pro)\s*\w+|昆仑芯?\s*\w*",
    re.I,
)
_COUNT = re.compile(r"(?:GPU ?数量|显卡数量|卡数|GPU count|Number of GPUs|GPUs)\s*[:：]\s*(\d+)", re.I)
_DRIVER = re.compile(
    r"(?:(?:NVIDIA |GPU |显卡|英伟达)?(?:驱动|driver)(?:程序)?(?:\s*(?:版本|version))?)\s*[:：]?\s*[vV]?(\d{3}(?:\.\d{2,3}(?:\.\d{2})?)?)(?![\d.])",
    re.I,
)
_MAX_CUDA = re.compile(
    r"(?:最高(?:支持)?(?:的)?\s*CUDA(?:\s*版本)?|支持(?:的)?(?:最高)?\s*CUDA(?:\s*版本)?|CUDA(?:\s*版本)?\s*(?:最高(?:支持)?|≤|<=|上限)|"
    r"max(?:imum)?\.?\s*CUDA(?:\s*version)?|CUDA\s*(?:max|up to)|cuda_max_good|驱动支持\s*CUDA|Driver CUDA)\s*[:：=]?\s*(?:≤|<=|到|至)?\s*(\d{1,2}\.\d)",
    re.I,
)
_CUDA = re.compile(r"CUDA(?:\s*(?:版本|version|Toolkit))?\s*[:：]?\s*[vV]?(\d{1,2}\.\d)", re.I)
_CUDNN = re.compile(r"cuDNN\s*(?:版本|version)?\s*[:：]?\s*[vV]?(\d+(?:\.\d+)*)", re.I)
_PYTHON = re.compile(r"(?:Python\s*(?:版本|version)?\s*[:：]?\s*|[-_:]py(?:thon)?-?)(\d\.\d{1,2})", re.I)
_OS = re.compile(r"(Ubuntu|Debian|CentOS|Rocky(?: ?Linux)?)\s*[-_]?\s*(\d{1,2}(?:\.\d{2})?)", re.I)
_FRAMEWORK = re.compile(
    r"(PyTorch|TensorFlow|PaddlePaddle|飞桨|MindSpore|昇思|JAX|ONNX ?Runtime|vLLM|TensorRT-LLM)\s*[:：=/]*\s*[vV]?(\d+\.\d+(?:\.\d+)?)",
    re.I,
)
_NAMES = {
    "pytorch": "torch",
    "tensorflow": "tensorflow",
    "paddlepaddle": "paddlepaddle-gpu",
    "飞桨": "paddlepaddle-gpu",
    "mindspore": "mindspore",
    "昇思": "mindspore",
    "jax": "jax",
    "onnxruntime": "onnxruntime-gpu",
    "vllm": "vllm",
    "tensorrt-llm": "tensorrt-llm",
}
_SIGNS = re.compile(
    r"显卡|显存|驱动|镜像|预装|系统盘|数据盘|算力|按量|包月|机型|vCPU|GPU|VRAM|driver|CUDA|image|instance|\$/h|/hr|元/",
    re.I,
)


def read_provider_page(text: str) -> Readings | None:
    """None when the text does not look like one (it names neither a card, nor a driver, nor a framework)."""
    if len(_SIGNS.findall(text)) < 1:
        return None
    out = Readings()
    name, count, memory_gib = _card(text)
    memory = _MEMORY.search(text)
    if memory_gib is None and memory:
        memory_gib = float(memory.group(1))
    if name:
        number = _COUNT.search(text)
        total = int(number.group(1)) if number else count
        for index in range(max(1, min(total, 64))):
            out.gpus.append(Gpu(name=name, index=index, memory_mib=int(memory_gib * 1024) if memory_gib else None))
    driver = _DRIVER.search(text)
    out.driver = driver.group(1) if driver else None
    top = _MAX_CUDA.search(text)
    out.driver_cuda = top.group(1) if top else None
    rest = text if top is None else text[: top.start()] + text[top.end() :]
    cuda = _CUDA.search(rest)
    out.toolkit = cuda.group(1) if cuda else None
    cudnn = _CUDNN.search(text)
    out.cudnn = cudnn.group(1) if cudnn else None
    python = _PYTHON.search(text)
    out.python = python.group(1) if python else None
    system = _OS.search(text)
    if system:
        word = system.group(1).lower().replace(" ", "")
        out.os = f"{'rockylinux' if word.startswith('rocky') else word}{system.group(2)}"
    for word, version in _FRAMEWORK.findall(text):
        key = _NAMES[word.lower().replace(" ", "")]
        out.frameworks.append(Requirement(key, f"=={version}", raw=f"{word} {version}"))
    if out.empty() or not (out.gpus or out.driver or out.driver_cuda or out.frameworks or out.toolkit):
        return None
    if out.driver is None and out.driver_cuda is None:
        out.asked.append("driver")
        said = (
            f"; the page's CUDA {out.toolkit} is the image's toolkit, not what the driver supports"
            if out.toolkit
            else ""
        )
        out.findings.append(
            HostFinding(
                "driver-missing",
                "ask",
                f"the page names no driver version{said}",
                "ask for the output of nvidia-smi on that very machine (驱动版本)",
            )
        )
    if not out.gpus:
        out.asked.append("gpu")
        out.findings.append(
            HostFinding("gpu-missing", "ask", "the page names no GPU model", "ask which card it is (显卡型号)")
        )
    return out


def _card(text: str) -> tuple[str | None, int, float | None]:
    """Name, count and memory in GiB of the card that the page offers."""
    labelled = _GPU.search(text)
    if labelled:
        inner = _CARD.search(labelled.group("name"))
        if inner:
            return _counted(labelled.group("name"), inner)
    found = _CARD.search(text)
    if found:
        return _counted(text, found)
    foreign = _FOREIGN.search(text)
    if foreign:
        return foreign.group().strip(), 1, None
    if labelled and re.search(r"[A-Za-z]*\d", labelled.group("name")):
        return labelled.group("name").strip(), 1, None
    return None, 1, None


def _counted(text: str, found: re.Match[str]) -> tuple[str, int, float | None]:
    rest = text[found.end() :]
    memory = _MEMORY_AFTER.match(rest)
    after = _COUNT_AFTER.match(rest)
    number = found.group("count") or found.group("after") or (after.group(1) if after else None)
    return found.group("name").strip(), int(number or 1), float(memory.group(1)) if memory else None
