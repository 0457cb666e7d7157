"""The words of reports, in English and Chinese. Measurements, ids and error texts stay as they are."""

from __future__ import annotations

from typing import Literal

Language = Literal["en", "zh"]
LANGUAGES: tuple[Language, ...] = ("en", "zh")

_WORDS: dict[str, tuple[str, str]] = {
    "title": ("GPU image verification", "GPU 镜像验证报告"),
    "certified": ("certified", "已认证"),
    "passed": ("passed", "通过"),
    "failed": ("failed", "未通过"),
    "cannot-tell": ("cannot tell", "无法判定"),
    "pass": ("pass", "通过"),
    "fail": ("FAIL", "失败"),
    "error": ("ERROR", "出错"),
    "skip": ("skip", "跳过"),
    "status": ("status", "结果"),
    "check": ("check", "检查项"),
    "measured": ("measured", "实测值"),
    "expected": ("expected", "要求值"),
    "seconds": ("seconds", "用时（秒）"),
    "reason": ("reason", "原因"),
    "hint": ("what to do", "处理办法"),
    "scope": ("valid for", "适用范围"),
    "expires": ("expires", "有效期至"),
    "image": ("image", "镜像"),
    "digest": ("digest", "摘要"),
    "profile": ("profile", "验证档位"),
    "device": ("device", "设备"),
    "driver": ("driver", "驱动"),
    "driver_cuda": ("driver_cuda (newest CUDA the driver supports)", "driver_cuda（驱动支持的最高 CUDA）"),
    "wheel_cuda": ("wheel_cuda (the framework was compiled with)", "wheel_cuda（框架编译所用 CUDA）"),
    "base_cuda": ("base_cuda (toolkit in the base image)", "base_cuda（基础镜像中的 CUDA 工具包）"),
    "cudnn": ("cuDNN", "cuDNN"),
    "nccl": ("NCCL", "NCCL"),
    "injection": ("GPU access", "GPU 接入方式"),
    "suite": ("suite", "验证套件"),
    "limits": ("what this does not prove", "未能证明的内容"),
    "why": ("why", "原因"),
    "curves": ("curves during the run", "运行期间曲线"),
    "utilisation": ("GPU utilisation, %", "GPU 利用率（%）"),
    "memory": ("GPU memory, MiB", "显存（MiB）"),
    "watched": ("seen from outside the container", "容器外观测"),
    "framework": ("framework", "框架"),
    "gpus": ("GPUs", "GPU"),
    "none": ("none", "无"),
    "unknown": ("unknown", "未知"),
    "checks_passed": ("checks passed", "项检查通过"),
    "skipped": ("not checked", "未检查"),
    "time": ("time", "时间"),
}

_TITLES_ZH: dict[str, str] = {
    "image.entrypoint": "镜像自带入口点可启动",
    "image.python": "镜像内有可用的 Python",
    "suite.run": "套件输出完整且未被伪造",
    "user.run": "用户自己的命令",
    "card.identity": "显卡名实相符",
    "card.link": "PCIe 链路完整",
    "card.state": "显卡空闲且未降频",
    "card.wear": "显卡未过度损耗",
    "compute.attention": "注意力",
    "compute.challenge": "本次运行的随机挑战",
    "compute.conv": "卷积前向与反向",
    "compute.h2d": "主机与 GPU 间传输",
    "compute.matmul": "各数值格式的矩阵乘",
    "compute.matmul_speed": "矩阵乘速度",
    "compute.membw": "显存带宽",
    "dist.busbw": "GPU 间总线带宽",
    "dist.cpu2": "CPU 上两个进程",
    "dist.cpu4": "CPU 上四个进程",
    "dist.init": "NCCL 进程组",
    "dist.together": "所有 GPU 同时计算",
    "driver.init": "CUDA 驱动可用",
    "driver.ptx": "加载时编译 PTX",
    "engine.trtllm": "TensorRT-LLM",
    "engine.vllm": "vLLM",
    "host.cdi": "CDI 规范为最新",
    "host.clock": "时钟正常",
    "host.disk": "磁盘空间与速度",
    "host.driver": "驱动适配 wheel_cuda",
    "host.inject": "GPU 的接入方式",
    "host.limits": "容器限制",
    "host.locale": "文本为 UTF-8",
    "host.require": "满足 NVIDIA_REQUIRE",
    "host.sandbox": "容器与机器类型",
    "host.shm": "/dev/shm 足够大且可写",
    "infer.lm": "语言模型",
    "infer.onnx": "导出 ONNX",
    "infer.quantised": "量化全流程",
    "infer.roundtrip": "保存、加载、推理",
    "mon.curve": "负载下的曲线",
    "mon.step": "多卡同步",
    "train.amp": "混合精度训练",
    "train.checkpoint": "检查点保存与恢复",
    "train.compile": "编译器",
    "train.epoch": "真实数据训练一轮",
    "train.loader": "数据加载进程",
    "triangle.declared": "框架可导入并自报版本",
    "triangle.loaded": "实际加载的 CUDA 库",
    "triangle.sm": "含本卡的机器码",
}


def word(key: str, language: Language) -> str:
    """The word in that language; KeyError for one that is not in the table (a mistake of ours)."""
    return _WORDS[key][LANGUAGES.index(language)]


def title_of(check_id: str, title: str, language: Language) -> str:
    """Title of a check; English where there is no translation."""
    return _TITLES_ZH.get(check_id, title) if language == "zh" else title
