"""Files known to be broken and files known to be sound, with where each comes from. Used by test_lint_corpus.py."""

from __future__ import annotations

from typing import NamedTuple


class Sample(NamedTuple):
    """One file: its name decides its kind; ``rules`` are the error rules of which one must speak (none for sound files)."""

    name: str
    file: str
    text: str
    source: str
    rules: tuple[str, ...] = ()
    python: str | None = None


def _broken(name: str, file: str, rules: str, source: str, text: str, python: str | None = None) -> Sample:
    return Sample(name, file, text.lstrip("\n"), source, tuple(rules.split()), python)


def _sound(name: str, file: str, source: str, text: str, python: str | None = None) -> Sample:
    return Sample(name, file, text.lstrip("\n"), source, (), python)


DOCKERFILE, REQUIREMENTS, CONDA, COMPOSE = "Dockerfile", "requirements.txt", "environment.yml", "compose.yaml"

BROKEN: tuple[Sample, ...] = (
    # --- base images ---------------------------------------------------------------------------------------------
    _broken(
        "nvcr-10.0-gone",
        DOCKERFILE,
        "tag-deleted tag-unknown",
        "https://github.com/NVIDIA/nvidia-docker/issues/1422",
        """
FROM nvcr.io/nvidia/cuda:10.0-cudnn7-runtime-ubuntu18.04
RUN apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qqy install python3-pip ffmpeg git
COPY . /app/
RUN pip3 install --upgrade pip
RUN pip3 install https://download.pytorch.org/whl/cu100/torch-1.0.0-cp36-cp36m-linux_x86_64.whl -r requirements.txt
""",
    ),
    _broken(
        "cule-10.0-devel",
        DOCKERFILE,
        "tag-deleted tag-unknown",
        "https://github.com/NVlabs/cule/issues/28",
        """
FROM nvidia/cuda:10.0-cudnn7-devel-ubuntu18.04 as base
RUN apt-get update
RUN apt-get install -y python3.6
RUN apt-get install -y python3-pip
RUN ln -s /usr/bin/python3.6 /usr/bin/python
RUN ln -s /usr/bin/pip3 /usr/bin/pip
RUN pip install torch==1.2.0
RUN pip install torchvision==0.4.0
""",
    ),
    _broken(
        "caffe-8.0",
        DOCKERFILE,
        "tag-deleted tag-unknown",
        "https://github.com/NVIDIA/nvidia-docker/issues/739",
        """
FROM nvidia/cuda:8.0-cudnn5-devel-ubuntu14.04
RUN apt-get update && apt-get install -y --no-install-recommends python-pip
""",
    ),
    _broken(
        "11.1-without-patch",
        DOCKERFILE,
        "tag-unknown tag-deleted",
        "https://github.com/microsoft/Bringing-Old-Photos-Back-to-Life/issues/163",
        """
FROM nvidia/cuda:11.1-base-ubuntu20.04
RUN apt update && DEBIAN_FRONTEND=noninteractive apt install git bzip2 wget unzip python3-pip python3-dev -yq
""",
    ),
    _broken(
        "latest-tag",
        DOCKERFILE,
        "no-latest-tag",
        "https://github.com/NVIDIA/nvidia-docker/issues/1454",
        """
FROM nvidia/cuda:latest
CMD ["nvidia-smi"]
""",
    ),
    _broken(
        "no-tag",
        DOCKERFILE,
        "no-latest-tag",
        "https://github.com/NVIDIA/nvidia-docker/issues/1454",
        "FROM nvidia/cuda\n",
    ),
    _broken(
        "cudnn8-after-12.4",
        DOCKERFILE,
        "tag-unknown",
        "https://github.com/tensorchord/envd/issues/1998",
        """
FROM nvidia/cuda:12.4.1-cudnn8-devel-ubuntu22.04
RUN nvcc --version
""",
    ),
    _broken(
        "cudnn-before-12.4",
        DOCKERFILE,
        "tag-unknown",
        "https://github.com/pytorch/pytorch/pull/125632",
        "FROM nvidia/cuda:12.1.1-cudnn-devel-ubuntu22.04\n",
    ),
    _broken(
        "11.7.0-superseded",
        DOCKERFILE,
        "tag-unknown tag-deleted",
        "https://github.com/NVIDIA/nvidia-docker/issues/1735",
        "FROM nvidia/cuda:11.7.0-devel-ubuntu20.04\n",
    ),
    _broken(
        "11.4.0-superseded",
        DOCKERFILE,
        "tag-unknown tag-deleted",
        "https://github.com/NVlabs/instant-ngp/issues/1406",
        "FROM nvidia/cuda:11.4.0-cudnn8-devel-ubuntu20.04\n",
    ),
    _broken(
        "no-os-suffix",
        DOCKERFILE,
        "tag-unknown tag-deleted",
        "https://github.com/iterative/cml/issues/1405",
        "FROM nvidia/cuda:11.8.0-base\n",
    ),
    _broken(
        "devel-only",
        DOCKERFILE,
        "tag-unknown tag-deleted",
        "https://github.com/prefix-dev/pixi-docker/issues/80",
        "FROM nvidia/cuda:devel-ubuntu20.04\n",
    ),
    _broken(
        "arg-inside-stage",
        DOCKERFILE,
        "arg-in-from",
        "https://docs.docker.com/reference/dockerfile/#understand-how-arg-and-from-interact",
        """
FROM ubuntu:22.04 AS tools
ARG CUDA_VERSION=12.4.1
FROM nvidia/cuda:${CUDA_VERSION}-base-ubuntu22.04
""",
    ),
    _broken(
        "arg-undeclared",
        DOCKERFILE,
        "arg-in-from",
        "https://docs.docker.com/reference/dockerfile/#understand-how-arg-and-from-interact",
        "FROM nvidia/cuda:${CUDA}-base-ubuntu22.04\n",
    ),
    _broken(
        "global-arg-in-run",
        DOCKERFILE,
        "arg-scope",
        "https://docs.docker.com/reference/dockerfile/#understand-how-arg-and-from-interact",
        """
ARG TORCH_VERSION=2.5.1
FROM python:3.11-slim
RUN pip install --no-cache-dir torch==${TORCH_VERSION}
""",
    ),
    _broken(
        "centos7-yum",
        DOCKERFILE,
        "os-eol",
        "https://github.com/conda-forge/docker-images/issues/277",
        "FROM centos:7\nRUN yum install -y gcc\n",
    ),
    _broken(
        "buster",
        DOCKERFILE,
        "os-eol",
        "https://lists.debian.org/debian-devel-announce/",
        """
FROM python:3.7-buster
RUN apt-get update && apt-get install -y ffmpeg
""",
    ),
    _broken(
        "lunar",
        DOCKERFILE,
        "os-eol",
        "https://github.com/ultralytics/ultralytics/pull/6077",
        "FROM ubuntu:23.04\nRUN apt-get update && apt-get install -y python3\n",
    ),
    # --- apt -----------------------------------------------------------------------------------------------------
    _broken(
        "old-key",
        DOCKERFILE,
        "apt-key",
        "https://github.com/NVIDIA/nvidia-docker/issues/1631",
        """
FROM ubuntu:20.04
RUN apt-get update && apt-get install -y gnupg curl
RUN apt-key adv --fetch-keys https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2004/x86_64/7fa2af80.pub
RUN echo "deb https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2004/x86_64 /" > /etc/apt/sources.list.d/cuda.list
RUN apt-get update && apt-get install -y cuda-toolkit-11-4
""",
    ),
    _broken(
        "machine-learning-repo",
        DOCKERFILE,
        "apt-gone",
        "https://github.com/OCR-D/ocrd_all/pull/310",
        """
FROM ubuntu:20.04
RUN echo "deb https://developer.download.nvidia.com/compute/machine-learning/repos/ubuntu1804/x86_64 /" > /etc/apt/sources.list.d/nvidia-ml.list
""",
    ),
    _broken(
        "libgl1-mesa-glx",
        DOCKERFILE,
        "apt-package",
        "https://github.com/sumit-ai-ml/ZERO-YOLO/issues/1",
        """
FROM nvidia/cuda:12.6.3-runtime-ubuntu24.04
RUN apt-get update && apt-get install -y python3 libgl1-mesa-glx libglib2.0-0
""",
    ),
    _broken(
        "python-pip-20.04",
        DOCKERFILE,
        "apt-package",
        "https://github.com/JulianAssmann/opencv-cuda-docker/issues/1",
        """
FROM nvidia/cuda:12.1.1-runtime-ubuntu20.04
RUN apt-get update && apt-get install -y python-pip
""",
    ),
    _broken(
        "python3.11-on-20.04",
        DOCKERFILE,
        "apt-package",
        "https://packages.ubuntu.com/focal/python3",
        """
FROM nvidia/cuda:12.1.1-runtime-ubuntu20.04
RUN apt-get update && apt-get install -y python3.11 python3.11-venv
""",
    ),
    _broken(
        "deadsnakes-on-20.04",
        DOCKERFILE,
        "apt-package",
        "https://github.com/deadsnakes/issues/issues/328",
        """
FROM nvidia/cuda:11.4.3-runtime-ubuntu20.04 as base
ENV DEBIAN_FRONTEND=noninteractive
RUN apt-get update && apt-get -y install --no-install-recommends build-essential software-properties-common && rm -rf /var/lib/apt/lists/*
RUN add-apt-repository -y ppa:deadsnakes/ppa && \\
        apt-get update && \\
        apt-get -y install --no-install-recommends \\
        python3.10-dev \\
        python3.10-venv && \\
        update-alternatives --install /usr/bin/python3 python3 /usr/bin/python3.10 1
""",
    ),
    _broken(
        "no-update",
        DOCKERFILE,
        "apt-no-update",
        "https://docs.docker.com/build/building/best-practices/#apt-get",
        "FROM nvidia/cuda:12.4.1-base-ubuntu22.04\nRUN apt-get install -y python3-pip\n",
    ),
    _broken(
        "no-yes",
        DOCKERFILE,
        "apt-prompt",
        "https://docs.docker.com/build/building/best-practices/#apt-get",
        "FROM nvidia/cuda:12.4.1-base-ubuntu22.04\nRUN apt-get update && apt-get install python3-pip\n",
    ),
    # --- Python in images ----------------------------------------------------------------------------------------
    _broken(
        "pep668-debian12",
        DOCKERFILE,
        "pep668",
        "https://github.com/replicate/cog/issues/2472",
        """
FROM debian:12
RUN apt-get update && apt-get install -y python3-pip
RUN pip3 install torch==2.5.1
""",
    ),
    _broken(
        "pep668-uv-system",
        DOCKERFILE,
        "pep668",
        "https://docs.astral.sh/uv/pip/environments/",
        """
FROM nvidia/cuda:12.6.3-base-ubuntu24.04
COPY --from=ghcr.io/astral-sh/uv:0.5.0 /uv /bin/uv
RUN apt-get update && apt-get install -y python3
RUN uv pip install --system torch==2.6.0
""",
    ),
    _broken(
        "no-pip-in-base",
        DOCKERFILE,
        "no-pip",
        "https://hub.docker.com/r/nvidia/cuda",
        "FROM nvidia/cuda:12.4.1-runtime-ubuntu22.04\nRUN pip install torch==2.5.1\n",
    ),
    _broken(
        "python-not-found",
        DOCKERFILE,
        "no-python",
        "https://wiki.ubuntu.com/FocalFossa/ReleaseNotes",
        """
FROM nvidia/cuda:12.4.1-base-ubuntu22.04
RUN apt-get update && apt-get install -y python3 python3-pip && pip3 install torch==2.5.1
COPY app.py /app.py
CMD ["python", "/app.py"]
""",
    ),
    _broken(
        "python312-torch-2.1",
        DOCKERFILE,
        "python-version",
        "https://github.com/pytorch/pytorch/issues/110436",
        "FROM python:3.12-slim\nRUN pip install torch==2.1.2\n",
    ),
    _broken(
        "python38-torch-2.5",
        DOCKERFILE,
        "python-version",
        "https://github.com/Dao-AILab/flash-attention/issues/1708",
        """
FROM nvidia/cuda:12.4.1-base-ubuntu20.04
RUN apt-get update && apt-get install -y python3-pip && pip3 install torch==2.5.1
""",
    ),
    _broken(
        "alpine",
        DOCKERFILE,
        "musl",
        "https://github.com/pytorch/pytorch/issues/7536",
        "FROM python:3.11-alpine\nRUN pip install torch==2.5.1\n",
    ),
    _broken(
        "opencv-without-libgl",
        DOCKERFILE,
        "missing-library",
        "https://github.com/lliuz/ARFlow/pull/30",
        """
FROM nvidia/cuda:12.4.1-runtime-ubuntu22.04
RUN apt-get update && apt-get install -y --no-install-recommends python3-pip
RUN pip3 install opencv-python==4.10.0.84
""",
    ),
    # --- CUDA in images ------------------------------------------------------------------------------------------
    _broken(
        "flash-attn-on-slim",
        DOCKERFILE,
        "no-nvcc",
        "https://github.com/Dao-AILab/flash-attention/issues/1229",
        """
FROM python:3.10-slim
WORKDIR /app
COPY . /app
RUN apt-get update && apt-get install -y git && rm -rf /var/lib/apt/lists/*
RUN pip install --upgrade pip
RUN pip install torch==2.0.1 torchvision==0.15.2
RUN pip install transformers==4.37.2 flask packaging
RUN pip install flash-attn --no-build-isolation
""",
    ),
    _broken(
        "flash-attn-on-runtime",
        DOCKERFILE,
        "no-nvcc",
        "https://github.com/Dao-AILab/flash-attention/issues/447",
        """
FROM pytorch/pytorch:2.4.0-cuda12.4-cudnn9-runtime
RUN pip install flash-attn==2.6.3 --no-build-isolation
""",
    ),
    _broken(
        "llama-cpp-on-runtime",
        DOCKERFILE,
        "no-nvcc",
        "https://github.com/abetlen/llama-cpp-python#supported-backends",
        """
FROM nvidia/cuda:12.4.1-runtime-ubuntu22.04
RUN apt-get update && apt-get install -y python3-pip build-essential cmake
RUN CMAKE_ARGS="-DGGML_CUDA=on" pip3 install llama-cpp-python==0.2.90
""",
    ),
    _broken(
        "apex-other-major",
        DOCKERFILE,
        "nvcc-major",
        "https://github.com/NVIDIA/apex/issues/988",
        """
FROM nvidia/cuda:11.8.0-devel-ubuntu22.04
RUN apt-get update && apt-get install -y python3-pip git
RUN pip3 install torch==2.4.1 packaging ninja
ENV TORCH_CUDA_ARCH_LIST="8.0 8.6"
RUN pip3 install -v --no-build-isolation --config-settings "--build-option=--cuda_ext" git+https://github.com/NVIDIA/apex.git
""",
    ),
    _broken(
        "faster-whisper-cudnn8",
        DOCKERFILE,
        "system-cuda",
        "https://github.com/SYSTRAN/faster-whisper/issues/729",
        """
FROM nvidia/cuda:12.2.2-cudnn8-runtime-ubuntu22.04
WORKDIR /root
RUN apt-get update -y && apt-get install -y python3-pip
COPY infer.py ./
RUN pip3 install faster-whisper==1.1.0 ctranslate2==4.5.0
CMD ["python3", "infer.py"]
""",
    ),
    _broken(
        "faster-whisper-base",
        DOCKERFILE,
        "system-cuda",
        "https://github.com/SYSTRAN/faster-whisper/issues/516",
        """
FROM nvidia/cuda:12.2.0-base-ubuntu20.04
RUN apt-get update && apt-get install -y python3-pip && pip3 install faster-whisper==1.0.3
""",
    ),
    _broken(
        "tf-2.4-on-10.1",
        DOCKERFILE,
        "system-cuda tag-deleted tag-unknown",
        "https://github.com/deepchem/deepchem/issues/2467",
        """
FROM nvidia/cuda:10.1-cudnn7-runtime-ubuntu18.04
RUN apt-get update && apt-get install -y python3-pip && pip3 install tensorflow==2.4.0
""",
    ),
    _broken(
        "tf-2.10-on-12",
        DOCKERFILE,
        "system-cuda",
        "https://github.com/matifali/dockerdl/issues/7",
        """
FROM nvidia/cuda:12.1.1-cudnn8-runtime-ubuntu22.04
RUN apt-get update && apt-get install -y python3-pip && pip3 install tensorflow==2.13.0
""",
    ),
    _broken(
        "onnxruntime-gpu-on-11",
        DOCKERFILE,
        "system-cuda",
        "https://onnxruntime.ai/docs/execution-providers/CUDA-ExecutionProvider.html",
        """
FROM nvidia/cuda:11.8.0-cudnn8-runtime-ubuntu22.04
RUN apt-get update && apt-get install -y python3-pip && pip3 install onnxruntime-gpu==1.20.1
""",
    ),
    _broken(
        "stubs-in-env",
        DOCKERFILE,
        "stubs-on-path",
        "https://github.com/NVIDIA/nvidia-docker/issues/1466",
        """
FROM nvidia/cuda:12.4.1-devel-ubuntu22.04
ENV LD_LIBRARY_PATH=/usr/local/cuda/lib64/stubs:$LD_LIBRARY_PATH
""",
    ),
    _broken(
        "nvidia-smi-at-build",
        DOCKERFILE,
        "gpu-at-build",
        "https://docs.docker.com/build/building/gpu/",
        "FROM nvidia/cuda:12.4.1-base-ubuntu22.04\nRUN nvidia-smi\n",
    ),
    _broken(
        "cuda-visible-devices-all",
        DOCKERFILE,
        "cuda-visible-devices",
        "https://docs.nvidia.com/cuda/cuda-c-programming-guide/#cuda-environment-variables",
        "FROM nvidia/cuda:12.4.1-base-ubuntu22.04\nENV CUDA_VISIBLE_DEVICES=all\n",
    ),
    _broken(
        "capabilities-utility-only",
        DOCKERFILE,
        "driver-capabilities",
        "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html",
        "FROM ubuntu:22.04\nENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=utility\n",
    ),
    _broken(
        "torch-index-for-everything",
        DOCKERFILE,
        "index-lacks-package",
        "https://pip.pypa.io/en/stable/cli/pip_install/#install-index-url",
        """
FROM python:3.11-slim
RUN pip install torch==2.5.1 transformers==4.46.0 --index-url https://download.pytorch.org/whl/cu124
""",
    ),
    # --- requirements --------------------------------------------------------------------------------------------
    _broken(
        "pair-1.10-0.8",
        REQUIREMENTS,
        "pair",
        "https://github.com/LevinRoman/tabular-transfer-learning/issues/1",
        "torch~=1.10.0\ntorchvision==0.8.2\n",
    ),
    _broken(
        "pair-1.10.0-0.11.2",
        REQUIREMENTS,
        "pair",
        "https://github.com/YixuanSeanZhou/Quantized_Neural_Nets/issues/14",
        "torch==1.10.0\ntorchvision==0.11.2\n",
    ),
    _broken(
        "pair-cu118",
        REQUIREMENTS,
        "pair",
        "https://github.com/Akegarasu/lora-scripts/pull/375",
        "--extra-index-url https://download.pytorch.org/whl/cu118\ntorch==2.2.1+cu118\ntorchvision==0.16.1+cu118\n",
    ),
    _broken(
        "no-index-for-cu118",
        REQUIREMENTS,
        "missing-index",
        "https://github.com/thuanz123/realfill/pull/16",
        "torch==2.2.1+cu118\ntorchvision==0.17.1+cu118\n",
    ),
    _broken(
        "mirror-has-no-label",
        REQUIREMENTS,
        "missing-index",
        "https://github.com/SociallyIneptWeeb/AICoverGen/issues/80",
        "-i https://pypi.tuna.tsinghua.edu.cn/simple\ntorch==2.0.1+cu118\n",
    ),
    _broken(
        "wrong-index-for-label",
        REQUIREMENTS,
        "missing-index",
        "https://pytorch.org/get-started/previous-versions/",
        "--extra-index-url https://download.pytorch.org/whl/cu121\ntorch==2.1.0+cu118\n",
    ),
    _broken(
        "tensorflow-gpu-2.12",
        REQUIREMENTS,
        "removed-package",
        "https://pypi.org/project/tensorflow-gpu/",
        "tensorflow-gpu==2.12.0\n",
    ),
    _broken("sklearn", REQUIREMENTS, "wrong-name", "https://pypi.org/project/sklearn/", "torch==2.5.1\nsklearn\n"),
    _broken(
        "cudatoolkit-in-pip",
        REQUIREMENTS,
        "wrong-name",
        "https://anaconda.org/nvidia/cudatoolkit",
        "torch==2.0.1\ncudatoolkit==11.7\n",
    ),
    _broken(
        "conda-lines",
        REQUIREMENTS,
        "unreadable-line",
        "https://pip.pypa.io/en/stable/reference/requirements-file-format/",
        "numpy=1.23.5=py310h53a5b5f_0\npytorch=2.0.1=py3.10_cuda11.7_cudnn8.5.0_0\n",
    ),
    _broken(
        "merge-conflict",
        REQUIREMENTS,
        "unreadable-line",
        "https://pip.pypa.io/en/stable/reference/requirements-file-format/",
        "<<<<<<< HEAD\ntorch==2.1.0\n=======\ntorch==2.2.0\n>>>>>>> dev\n",
    ),
    _broken(
        "two-pins",
        REQUIREMENTS,
        "duplicate",
        "https://pip.pypa.io/en/stable/topics/dependency-resolution/",
        "torch==2.1.0\nnumpy<2\ntorch==2.0.1\n",
    ),
    _broken(
        "croot-path",
        REQUIREMENTS,
        "local-path",
        "https://github.com/conda/conda/issues/11580",
        "numpy @ file:///croot/numpy_and_numpy_base_1682953417311/work\ntorch==2.0.1\n",
    ),
    _broken(
        "win-wheel",
        REQUIREMENTS,
        "wheel-platform",
        "https://peps.python.org/pep-0425/",
        "torch==2.5.1\nhttps://example.org/flash_attn-2.7.0-cp310-cp310-win_amd64.whl\n",
    ),
    _broken(
        "flash-wheel-other-torch",
        REQUIREMENTS,
        "extension-abi",
        "https://github.com/ByteDance-Seed/Bagel/issues/50",
        "torch==2.5.1\nflash-attn @ https://github.com/Dao-AILab/flash-attention/releases/download/v2.7.4.post1/flash_attn-2.7.4.post1+cu12torch2.6cxx11abiFALSE-cp310-cp310-linux_x86_64.whl\n",
    ),
    _broken(
        "pyg-page-other-torch",
        REQUIREMENTS,
        "extension-abi",
        "https://github.com/rusty1s/pytorch_scatter/issues/412",
        "-f https://data.pyg.org/whl/torch-2.0.0+cu118.html\ntorch==2.3.0\ntorch-scatter\nnumpy<2\n",
    ),
    _broken(
        "two-onnxruntimes",
        REQUIREMENTS,
        "two-of-a-kind",
        "https://onnxruntime.ai/docs/install/",
        "onnxruntime==1.19.2\nonnxruntime-gpu==1.19.2\n",
    ),
    _broken(
        "two-cupys",
        REQUIREMENTS,
        "two-of-a-kind",
        "https://docs.cupy.dev/en/stable/install.html",
        "cupy-cuda11x==13.3.0\ncupy-cuda12x==13.3.0\n",
    ),
    _broken(
        "vllm-and-torch",
        REQUIREMENTS,
        "pair",
        "https://github.com/vllm-project/vllm/issues/1718",
        "vllm==0.6.3\ntorch==2.5.1\n",
    ),
    _broken(
        "numpy-2-with-torch-2.1",
        REQUIREMENTS,
        "numpy-abi",
        "https://github.com/pytorch/pytorch/issues/107302",
        "torch==2.1.2\nnumpy==2.0.1\n",
    ),
    _broken(
        "py312-and-torch-2.0",
        REQUIREMENTS,
        "python-version",
        "https://github.com/pytorch/pytorch/issues/110436",
        "torch==2.0.1\n",
        "3.12",
    ),
    _broken(
        "tf-1.15-on-3.8",
        REQUIREMENTS,
        "python-version",
        "https://github.com/tensorflow/tensorflow/issues/34302",
        "tensorflow==1.15.0\n",
        "3.8",
    ),
    _broken(
        "no-such-torch", REQUIREMENTS, "no-such-version", "https://pypi.org/project/torch/#history", "torch==2.1.5\n"
    ),
    _broken(
        "paddle-3-from-pypi",
        REQUIREMENTS,
        "removed-package",
        "https://www.paddlepaddle.org.cn/install/quick",
        "paddlepaddle-gpu==3.0.0\n",
    ),
    # --- conda ---------------------------------------------------------------------------------------------------
    _broken(
        "conda-cudatoolkit-12",
        CONDA,
        "conda-cudatoolkit",
        "https://anaconda.org/nvidia/cudatoolkit/files",
        """
name: x
channels: [pytorch, nvidia]
dependencies: [python=3.10, pytorch=2.1, cudatoolkit=12.1]
""",
    ),
    _broken(
        "conda-no-nvidia-channel",
        CONDA,
        "conda-channel",
        "https://pytorch.org/get-started/previous-versions/",
        """
name: x
channels:
  - pytorch
dependencies:
  - python=3.10
  - pytorch=2.1.0
  - pytorch-cuda=12.1
""",
    ),
    _broken(
        "conda-1.9-with-11.6",
        CONDA,
        "conda-cudatoolkit",
        "https://github.com/pytorch/pytorch/issues/69202",
        """
name: x
channels: [pytorch]
dependencies:
  - pytorch=1.9.0
  - torchvision=0.10.0
  - cudatoolkit=11.6
""",
    ),
    _broken(
        "conda-pytorch-2.6",
        CONDA,
        "conda-channel",
        "https://github.com/pytorch/pytorch/issues/138506",
        """
name: x
channels: [pytorch, nvidia]
dependencies: [python=3.11, pytorch=2.6.0, pytorch-cuda=12.4]
""",
    ),
    _broken(
        "conda-win-export",
        CONDA,
        "conda-platform",
        "https://docs.conda.io/projects/conda/en/stable/user-guide/tasks/manage-environments.html",
        """
name: x
channels: [defaults]
dependencies:
  - python=3.8.13=h6244533_0
  - vs2015_runtime=14.27.29016=h5e58377_2
  - vc=14.2=h21ff451_1
""",
    ),
    _broken(
        "conda-torch-name",
        CONDA,
        "wrong-name",
        "https://anaconda.org/pytorch/pytorch",
        "name: x\nchannels: [pytorch, nvidia]\ndependencies: [python=3.10, torch=2.1]\n",
    ),
    _broken(
        "conda-pair",
        CONDA,
        "pair",
        "https://github.com/deepchem/deepchem/issues/2915",
        """
name: x
channels: [pytorch, conda-forge]
dependencies:
  - pytorch=1.11.0
  - torchvision=0.11.0
  - cudatoolkit=11.3
""",
    ),
    _broken(
        "conda-pip-pair",
        CONDA,
        "pair",
        "https://github.com/deepchem/deepchem/issues/2915",
        """
name: deepchem
channels: [conda-forge]
dependencies:
  - python=3.8
  - pip
  - pip:
    - -f https://download.pytorch.org/whl/torch_stable.html
    - torch==1.11.0+cu113
    - torchvision==0.11.0+cu113
""",
    ),
    # --- compose -------------------------------------------------------------------------------------------------
    _broken(
        "compose-no-gpu",
        COMPOSE,
        "compose-no-gpu",
        "https://docs.docker.com/compose/how-tos/gpu-support/",
        """
services:
  llm:
    image: vllm/vllm-openai:v0.6.3
    ipc: host
    ports: ["8000:8000"]
""",
    ),
    _broken(
        "compose-count-and-ids",
        COMPOSE,
        "compose-device",
        "https://github.com/docker/docs/pull/12315",
        """
services:
  a:
    image: nvidia/cuda:12.4.1-base-ubuntu22.04
    deploy:
      resources:
        reservations:
          devices:
            - driver: nvidia
              count: 1
              device_ids: ["0"]
              capabilities: [gpu]
""",
    ),
    _broken(
        "compose-no-capabilities",
        COMPOSE,
        "compose-device",
        "https://github.com/docker/docs/pull/12315",
        """
services:
  a:
    image: nvidia/cuda:12.4.1-base-ubuntu22.04
    deploy: {resources: {reservations: {devices: [{driver: nvidia, count: all}]}}}
""",
    ),
    _broken(
        "compose-in-limits",
        COMPOSE,
        "compose-device",
        "https://github.com/compose-spec/compose-spec/blob/main/deploy.md#devices",
        """
services:
  a:
    image: nvidia/cuda:12.4.1-base-ubuntu22.04
    deploy:
      resources:
        limits:
          devices:
            - {driver: nvidia, count: 1, capabilities: [gpu]}
""",
    ),
    _broken(
        "compose-deleted-image",
        COMPOSE,
        "tag-deleted tag-unknown",
        "https://github.com/docker/compose/issues/6691",
        """
services:
  a:
    image: nvidia/cuda:10.0-base
    command: nvidia-smi
    deploy: {resources: {reservations: {devices: [{capabilities: [gpu]}]}}}
""",
    ),
    _broken(
        "compose-cuda-visible-all",
        COMPOSE,
        "cuda-visible-devices",
        "https://docs.nvidia.com/cuda/cuda-c-programming-guide/#cuda-environment-variables",
        """
services:
  a:
    image: pytorch/pytorch:2.4.0-cuda12.4-cudnn9-runtime
    shm_size: 8gb
    environment:
      CUDA_VISIBLE_DEVICES: all
    deploy: {resources: {reservations: {devices: [{driver: nvidia, count: all, capabilities: [gpu]}]}}}
""",
    ),
    _broken(
        "compose-runtime-name",
        COMPOSE,
        "compose-runtime",
        "https://docs.docker.com/compose/how-tos/gpu-support/",
        """
services:
  a:
    image: nvidia/cuda:12.4.1-base-ubuntu22.04
    runtime: nvidia-container-runtime
""",
    ),
)

SOUND: tuple[Sample, ...] = (
    _sound(
        "ngc-23.10",
        DOCKERFILE,
        "https://docs.nvidia.com/deeplearning/frameworks/support-matrix/index.html",
        """
FROM nvcr.io/nvidia/pytorch:23.10-py3
WORKDIR /workspace
COPY . .
RUN pip install --no-cache-dir -r requirements.txt
RUN pip install flash-attn==2.3.3 --no-build-isolation
""",
    ),
    _sound(
        "pytorch-runtime",
        DOCKERFILE,
        "https://hub.docker.com/r/pytorch/pytorch",
        """
FROM pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime
RUN apt-get update && apt-get install -y --no-install-recommends git && rm -rf /var/lib/apt/lists/*
RUN pip install --no-cache-dir transformers==4.46.0
COPY train.py /train.py
CMD ["python", "/train.py"]
""",
    ),
    _sound(
        "venv-on-24.04",
        DOCKERFILE,
        "https://peps.python.org/pep-0668/",
        """
FROM nvidia/cuda:12.6.3-base-ubuntu24.04
RUN apt-get update && apt-get install -y --no-install-recommends python3-venv && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv /opt/venv
ENV PATH="/opt/venv/bin:$PATH" LANG=C.UTF-8
RUN pip install --no-cache-dir torch==2.6.0
CMD ["python", "-c", "import torch"]
""",
    ),
    _sound(
        "break-system-packages",
        DOCKERFILE,
        "https://peps.python.org/pep-0668/",
        """
FROM nvidia/cuda:12.6.3-base-ubuntu24.04
RUN apt-get update && apt-get install -y python3-pip && rm -rf /var/lib/apt/lists/*
RUN pip3 install --break-system-packages torch==2.6.0
""",
    ),
    _sound(
        "pip-break-env",
        DOCKERFILE,
        "https://pip.pypa.io/en/stable/topics/configuration/",
        """
FROM nvidia/cuda:12.6.3-base-ubuntu24.04
ENV PIP_BREAK_SYSTEM_PACKAGES=1
RUN apt-get update && apt-get install -y python3-pip && rm -rf /var/lib/apt/lists/*
RUN pip install torch==2.6.0
""",
    ),
    _sound(
        "external-marker-removed",
        DOCKERFILE,
        "https://peps.python.org/pep-0668/",
        """
FROM ubuntu:24.04
RUN apt-get update && apt-get install -y python3-pip && rm /usr/lib/python3*/EXTERNALLY-MANAGED
RUN pip install torch==2.6.0
""",
    ),
    _sound(
        "python-image-debian12",
        DOCKERFILE,
        "https://hub.docker.com/_/python",
        """
FROM python:3.11-slim-bookworm
RUN pip install --no-cache-dir torch==2.5.1 --index-url https://download.pytorch.org/whl/cu124
RUN pip install --no-cache-dir transformers==4.46.0
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
CMD ["python", "-c", "print(1)"]
""",
    ),
    _sound(
        "args-with-defaults",
        DOCKERFILE,
        "https://docs.docker.com/reference/dockerfile/#understand-how-arg-and-from-interact",
        """
ARG CUDA_VERSION=12.4.1
ARG OS=ubuntu22.04
FROM nvidia/cuda:${CUDA_VERSION}-devel-${OS} AS build
ARG CUDA_VERSION
RUN echo $CUDA_VERSION
FROM nvidia/cuda:${CUDA_VERSION}-base-${OS}
COPY --from=build /usr/local/cuda/version.json /v.json
""",
    ),
    _sound(
        "flash-attn-devel",
        DOCKERFILE,
        "https://github.com/Dao-AILab/flash-attention#installation-and-features",
        """
FROM pytorch/pytorch:2.4.0-cuda12.4-cudnn9-devel
RUN pip install --no-cache-dir packaging ninja && pip install --no-cache-dir flash-attn==2.6.3 --no-build-isolation
""",
    ),
    _sound(
        "flash-attn-wheel-on-base",
        DOCKERFILE,
        "https://github.com/Dao-AILab/flash-attention/releases",
        """
FROM nvidia/cuda:12.4.1-base-ubuntu22.04
RUN apt-get update && apt-get install -y --no-install-recommends python3-pip && rm -rf /var/lib/apt/lists/*
RUN pip3 install --no-cache-dir torch==2.5.1 "numpy<3"
RUN pip3 install --no-cache-dir https://github.com/Dao-AILab/flash-attention/releases/download/v2.7.4.post1/flash_attn-2.7.4.post1+cu12torch2.5cxx11abiFALSE-cp310-cp310-linux_x86_64.whl
""",
    ),
    _sound(
        "build-then-runtime",
        DOCKERFILE,
        "https://docs.docker.com/build/building/multi-stage/",
        """
FROM nvidia/cuda:12.4.1-devel-ubuntu22.04 AS build
RUN apt-get update && apt-get install -y --no-install-recommends cmake build-essential git && rm -rf /var/lib/apt/lists/*
COPY . /src
RUN cmake -S /src -B /build -DGGML_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES="80;86;90" && cmake --build /build -j
FROM nvidia/cuda:12.4.1-runtime-ubuntu22.04
COPY --from=build /build/bin /usr/local/bin
ENTRYPOINT ["/usr/local/bin/server"]
""",
    ),
    _sound(
        "stub-at-link-time",
        DOCKERFILE,
        "https://github.com/NVIDIA/nvidia-docker/issues/1466",
        """
FROM nvidia/cuda:12.4.1-devel-ubuntu22.04
RUN apt-get update && apt-get install -y gcc && rm -rf /var/lib/apt/lists/*
ENV LIBRARY_PATH=/usr/local/cuda/lib64/stubs:$LIBRARY_PATH
RUN ln -s /usr/local/cuda/lib64/stubs/libcuda.so /usr/local/cuda/lib64/stubs/libcuda.so.1 && make && rm /usr/local/cuda/lib64/stubs/libcuda.so.1
""",
    ),
    _sound(
        "faster-whisper-cudnn9",
        DOCKERFILE,
        "https://github.com/SYSTRAN/faster-whisper#gpu",
        """
FROM nvidia/cuda:12.4.1-cudnn-runtime-ubuntu22.04
RUN apt-get update && apt-get install -y --no-install-recommends python3-pip && rm -rf /var/lib/apt/lists/*
RUN pip3 install --no-cache-dir faster-whisper==1.1.0 ctranslate2==4.5.0
""",
    ),
    _sound(
        "ctranslate2-4.4-cudnn8",
        DOCKERFILE,
        "https://github.com/SYSTRAN/faster-whisper/issues/729",
        """
FROM nvidia/cuda:12.2.2-cudnn8-runtime-ubuntu22.04
WORKDIR /root
RUN apt-get update -y && apt-get install -y python3-pip
RUN pip3 install faster-whisper==1.0.3
RUN pip3 install --force-reinstall ctranslate2==4.4.0
CMD ["python3", "infer.py"]
""",
    ),
    _sound(
        "onnxruntime-gpu-12",
        DOCKERFILE,
        "https://onnxruntime.ai/docs/execution-providers/CUDA-ExecutionProvider.html",
        """
FROM nvidia/cuda:12.4.1-cudnn-runtime-ubuntu22.04
RUN apt-get update && apt-get install -y python3-pip && rm -rf /var/lib/apt/lists/*
RUN pip3 install onnxruntime-gpu==1.20.1 opencv-python-headless==4.10.0.84
""",
    ),
    _sound(
        "tf-2.15-and-cuda",
        DOCKERFILE,
        "https://www.tensorflow.org/install/pip",
        """
FROM python:3.11-slim
RUN pip install --no-cache-dir "tensorflow[and-cuda]==2.15.1"
""",
    ),
    _sound(
        "tf-2.10-on-11.2",
        DOCKERFILE,
        "https://www.tensorflow.org/install/source#gpu",
        """
FROM nvidia/cuda:11.2.2-cudnn8-runtime-ubuntu20.04
RUN apt-get update && apt-get install -y python3-pip && rm -rf /var/lib/apt/lists/*
RUN pip3 install --upgrade pip && pip3 install tensorflow==2.10.0 "numpy<2"
""",
    ),
    _sound(
        "new-key",
        DOCKERFILE,
        "https://developer.nvidia.com/blog/updating-the-cuda-linux-gpg-repository-key/",
        """
FROM ubuntu:22.04
RUN apt-get update && apt-get install -y --no-install-recommends wget ca-certificates
RUN wget https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2204/x86_64/cuda-keyring_1.1-1_all.deb && dpkg -i cuda-keyring_1.1-1_all.deb
RUN apt-get update && apt-get install -y cuda-nvcc-12-4 && rm -rf /var/lib/apt/lists/*
""",
    ),
    _sound(
        "old-key-deleted",
        DOCKERFILE,
        "https://github.com/replicate/cog-examples/issues/14",
        """
FROM nvidia/cuda:11.8.0-cudnn8-devel-ubuntu22.04
RUN rm -f /etc/apt/sources.list.d/cuda.list && rm -f /etc/apt/sources.list.d/nvidia-ml.list && apt-key del 7fa2af80
RUN apt-get update -qq && apt-get install -qqy --no-install-recommends curl && rm -rf /var/lib/apt/lists/*
""",
    ),
    _sound(
        "centos-vault",
        DOCKERFILE,
        "https://vault.centos.org/",
        """
FROM centos:7
RUN sed -i 's/mirrorlist/#mirrorlist/g; s|#baseurl=http://mirror.centos.org|baseurl=http://vault.centos.org|g' /etc/yum.repos.d/CentOS-*
RUN yum install -y gcc
""",
    ),
    _sound(
        "deadsnakes-on-22.04",
        DOCKERFILE,
        "https://launchpad.net/~deadsnakes/+archive/ubuntu/ppa",
        """
FROM nvidia/cuda:12.4.1-base-ubuntu22.04
ARG DEBIAN_FRONTEND=noninteractive
RUN apt-get update && apt-get install -y software-properties-common curl && add-apt-repository -y ppa:deadsnakes/ppa \\
 && apt-get update && apt-get install -y python3.12 python3.12-venv
RUN python3.12 -m venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH
RUN pip install torch==2.5.1
CMD ["python", "-V"]
""",
    ),
    _sound(
        "uv-project",
        DOCKERFILE,
        "https://docs.astral.sh/uv/guides/integration/docker/",
        """
FROM nvidia/cuda:12.6.3-base-ubuntu24.04
COPY --from=ghcr.io/astral-sh/uv:0.5.0 /uv /uvx /bin/
WORKDIR /app
RUN uv python install 3.11 && uv venv --python 3.11 /opt/venv
ENV VIRTUAL_ENV=/opt/venv PATH=/opt/venv/bin:$PATH
RUN uv pip install torch==2.6.0
CMD ["python", "main.py"]
""",
    ),
    _sound(
        "conda-image",
        DOCKERFILE,
        "https://hub.docker.com/r/continuumio/miniconda3",
        """
FROM continuumio/miniconda3:24.7.1-0
RUN conda install -y -c pytorch -c nvidia python=3.11 pytorch=2.4.1 torchvision=0.19.1 pytorch-cuda=12.1 && conda clean -afy
""",
    ),
    _sound(
        "miniconda-on-cuda",
        DOCKERFILE,
        "https://github.com/Sygil-Dev/sygil-webui/issues/490",
        """
FROM nvidia/cuda:12.1.1-base-ubuntu22.04
RUN apt-get update && apt-get install -y wget && rm -rf /var/lib/apt/lists/*
ENV CONDA_DIR=/opt/conda
RUN wget -O ~/miniconda.sh -q https://repo.anaconda.com/miniconda/Miniconda3-latest-Linux-x86_64.sh && /bin/bash ~/miniconda.sh -b -p $CONDA_DIR && rm ~/miniconda.sh
ENV PATH=$CONDA_DIR/bin:$PATH
RUN pip install torch==2.4.1
CMD ["python", "app.py"]
""",
    ),
    _sound(
        "optional-gpu-check",
        DOCKERFILE,
        "https://docs.docker.com/build/building/gpu/",
        """
FROM nvidia/cuda:12.4.1-base-ubuntu22.04
RUN nvidia-smi || true
RUN if [ -n "$X" ]; then nvidia-smi; fi
""",
    ),
    _sound(
        "vllm-image",
        DOCKERFILE,
        "https://docs.vllm.ai/en/latest/deployment/docker.html",
        """
FROM vllm/vllm-openai:v0.6.3
RUN pip install --no-cache-dir hf_transfer==0.1.8
""",
    ),
    _sound(
        "pinned-digest",
        DOCKERFILE,
        "https://docs.docker.com/build/building/best-practices/#pin-base-image-versions",
        """
FROM nvidia/cuda@sha256:0f6bfcbf267e65123bcc2287e2153dedfc0f24772fb5ce84afe16ac4b2fada95
CMD ["nvidia-smi"]
""",
    ),
    _sound(
        "tegra",
        DOCKERFILE,
        "https://catalog.ngc.nvidia.com/orgs/nvidia/containers/l4t-pytorch",
        "FROM nvcr.io/nvidia/l4t-pytorch:r35.2.1-pth2.0-py3\nCOPY . /app\n",
    ),
    _sound(
        "install-by-variable",
        DOCKERFILE,
        "https://docs.docker.com/reference/dockerfile/#environment-replacement",
        """
FROM python:3.10-slim
ARG TORCH=2.5.1
ARG CUDA=cu124
RUN pip install --no-cache-dir torch==${TORCH}+${CUDA} torchvision==0.20.1+${CUDA} --extra-index-url https://download.pytorch.org/whl/${CUDA}
""",
    ),
    _sound(
        "heredoc",
        DOCKERFILE,
        "https://docs.docker.com/reference/dockerfile/#here-documents",
        """
# syntax=docker/dockerfile:1
FROM nvidia/cuda:12.4.1-base-ubuntu22.04
RUN <<EOF
apt-get update
apt-get install -y --no-install-recommends python3-pip
rm -rf /var/lib/apt/lists/*
pip3 install --no-cache-dir torch==2.5.1
EOF
""",
    ),
    # --- requirements --------------------------------------------------------------------------------------------
    _sound(
        "torch-2.5-cu124",
        REQUIREMENTS,
        "https://pytorch.org/get-started/previous-versions/",
        "--extra-index-url https://download.pytorch.org/whl/cu124\ntorch==2.5.1+cu124\ntorchvision==0.20.1+cu124\ntorchaudio==2.5.1+cu124\n",
        "3.11",
    ),
    _sound(
        "torch-stable-page",
        REQUIREMENTS,
        "https://pytorch.org/get-started/previous-versions/",
        "-f https://download.pytorch.org/whl/torch_stable.html\ntorch==1.9.0+cu111\ntorchvision==0.10.0+cu111\ntorchaudio==0.9.0\nnumpy<2\n",
        "3.8",
    ),
    _sound(
        "index-url-cu118",
        REQUIREMENTS,
        "https://pytorch.org/get-started/previous-versions/",
        "--index-url https://download.pytorch.org/whl/cu118\n--extra-index-url https://pypi.org/simple\ntorch==2.1.0\ntorchvision==0.16.0\ntransformers==4.36.0\nnumpy<2\n",
        "3.10",
    ),
    _sound(
        "markers",
        REQUIREMENTS,
        "https://peps.python.org/pep-0508/",
        "torch==2.5.1 ; python_version >= '3.9'\ntorch==2.4.1 ; python_version < '3.9'\nonnxruntime==1.19.2 ; sys_platform == 'darwin'\nonnxruntime-gpu==1.19.2 ; sys_platform == 'linux'\npywin32==306 ; sys_platform == 'win32'\n",
    ),
    _sound(
        "private-index",
        REQUIREMENTS,
        "https://pip.pypa.io/en/stable/cli/pip_install/",
        "--extra-index-url https://wheels.example.com/simple/\ntorch==2.5.1+cu124\n",
    ),
    _sound(
        "aliyun-wheels",
        REQUIREMENTS,
        "https://developer.aliyun.com/mirror/pytorch-wheels",
        "-f https://mirrors.aliyun.com/pytorch-wheels/cu121\ntorch==2.3.1+cu121\nnumpy<2\n",
    ),
    _sound(
        "hashes",
        REQUIREMENTS,
        "https://pip.pypa.io/en/stable/topics/secure-installs/",
        "numpy==1.26.4 \\\n    --hash=sha256:2a02aba9ed12e4ac4eb3ea9421c420301a0c6460d9830d74a9df87efa4912010 \\\n    --hash=sha256:4c66707fabe114439db9068ee468c26bbdf909cac0fb58686a42a24de1760c71\n",
    ),
    _sound(
        "vllm-with-its-torch",
        REQUIREMENTS,
        "https://pypi.org/project/vllm/0.6.3/",
        "vllm==0.6.3\ntorch==2.4.0\n",
        "3.11",
    ),
    _sound(
        "pyg-page",
        REQUIREMENTS,
        "https://pytorch-geometric.readthedocs.io/en/latest/install/installation.html",
        "--extra-index-url https://download.pytorch.org/whl/cu121\n-f https://data.pyg.org/whl/torch-2.3.0+cu121.html\ntorch==2.3.0+cu121\ntorch-scatter\nnumpy<2\n",
    ),
    _sound(
        "ranges",
        REQUIREMENTS,
        "https://peps.python.org/pep-0440/",
        "torch>=2.1,<2.6\ntorchvision\nnumpy<2\ntransformers>=4.40\n",
    ),
    _sound(
        "flash-wheel",
        REQUIREMENTS,
        "https://github.com/Dao-AILab/flash-attention/releases",
        "torch==2.6.0\nflash-attn @ https://github.com/Dao-AILab/flash-attention/releases/download/v2.7.4.post1/flash_attn-2.7.4.post1+cu12torch2.6cxx11abiFALSE-cp311-cp311-linux_x86_64.whl\n",
        "3.11",
    ),
    _sound(
        "jax-cuda12",
        REQUIREMENTS,
        "https://docs.jax.dev/en/latest/installation.html",
        "jax[cuda12]==0.4.35\nflax==0.10.0\n",
        "3.11",
    ),
    # --- conda ---------------------------------------------------------------------------------------------------
    _sound(
        "conda-2.1",
        CONDA,
        "https://pytorch.org/get-started/previous-versions/",
        """
name: x
channels: [pytorch, nvidia, conda-forge]
dependencies:
  - python=3.10
  - pytorch=2.1.0
  - torchvision=0.16.0
  - torchaudio=2.1.0
  - pytorch-cuda=12.1
  - pip
  - pip:
    - transformers==4.36.0
""",
    ),
    _sound(
        "conda-1.12",
        CONDA,
        "https://github.com/chengtan9907/OpenSTL/issues/63",
        """
name: OpenSTL
channels: [pytorch, conda-forge, defaults]
dependencies:
  - numpy
  - pip
  - python=3.9
  - pytorch=1.12.0
  - cudatoolkit=11.3
  - torchvision=0.13.0
  - pip:
    - timm<=0.6.11
prefix: /opt/anaconda3/envs/openstl
""",
    ),
    _sound(
        "conda-forge-gpu",
        CONDA,
        "https://conda-forge.org/docs/user/tipsandtricks/#installing-cuda-enabled-packages-like-tensorflow-and-pytorch",
        """
name: x
channels: [conda-forge]
dependencies: [python=3.11, pytorch-gpu=2.5.1, cuda-version=12.6]
""",
    ),
    _sound(
        "conda-python-pip-torch",
        CONDA,
        "https://pytorch.org/get-started/locally/",
        """
name: x
channels: [conda-forge]
dependencies:
  - python=3.11
  - pip
  - pip:
    - --extra-index-url https://download.pytorch.org/whl/cu124
    - torch==2.5.1+cu124
    - torchvision==0.20.1+cu124
""",
    ),
    # --- compose -------------------------------------------------------------------------------------------------
    _sound(
        "compose-vllm",
        COMPOSE,
        "https://docs.docker.com/compose/how-tos/gpu-support/",
        """
services:
  llm:
    image: vllm/vllm-openai:v0.6.3
    ipc: host
    deploy:
      resources:
        reservations:
          devices:
            - driver: nvidia
              count: all
              capabilities: [gpu]
""",
    ),
    _sound(
        "compose-runtime",
        COMPOSE,
        "https://docs.docker.com/compose/how-tos/gpu-support/",
        """
version: "2.3"
services:
  a:
    image: nvidia/cuda:12.4.1-base-ubuntu22.04
    runtime: nvidia
    environment: [NVIDIA_VISIBLE_DEVICES=all, "NVIDIA_DRIVER_CAPABILITIES=compute,utility"]
    command: nvidia-smi
""",
    ),
    _sound(
        "compose-cdi",
        COMPOSE,
        "https://docs.docker.com/reference/compose-file/services/#devices",
        """
services:
  a:
    image: nvidia/cuda:12.4.1-base-ubuntu22.04
    command: nvidia-smi
    devices: ["nvidia.com/gpu=all"]
""",
    ),
    _sound(
        "compose-gpus",
        COMPOSE,
        "https://docs.docker.com/reference/compose-file/services/#gpus",
        """
services:
  a:
    image: nvidia/cuda:12.4.1-base-ubuntu22.04
    gpus: all
  db:
    image: postgres:16
""",
    ),
    _sound(
        "compose-ids",
        COMPOSE,
        "https://github.com/docker/docs/pull/12315",
        """
x-gpu: &gpu
  deploy:
    resources:
      reservations:
        devices:
          - driver: nvidia
            device_ids: ["0", "1"]
            capabilities: [gpu]
services:
  train:
    <<: *gpu
    image: pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime
    shm_size: 16gb
  web:
    image: nginx:1.27
""",
    ),
    _sound(
        "compose-override-build",
        COMPOSE,
        "https://github.com/seethroughlab/familiar/pull/266",
        """
services:
  app:
    build: {context: ., dockerfile: Dockerfile}
    environment:
      - OLLAMA_HOST=http://ollama:11434
  ollama:
    image: ollama/ollama:0.3.12
""",
    ),
)

SOUND += (
    _sound("pip-from-a-script", DOCKERFILE, "https://docs.docker.com/build/building/best-practices/", """
FROM nvidia/cuda:12.4.1-base-ubuntu22.04
COPY scripts /scripts
RUN bash /scripts/install_python.sh
RUN pip install torch==2.5.1
"""),
    _sound("packages-from-a-list", DOCKERFILE, "https://docs.docker.com/build/building/best-practices/", """
FROM nvidia/cuda:12.4.1-base-ubuntu22.04
COPY packages.txt .
RUN apt-get update && xargs apt-get install -y < packages.txt && rm -rf /var/lib/apt/lists/*
RUN pip3 install torch==2.5.1
"""),
    _sound("add-apt-repository-updates", DOCKERFILE, "https://launchpad.net/~deadsnakes/+archive/ubuntu/ppa", """
FROM nvidia/cuda:12.4.1-base-ubuntu22.04
ARG DEBIAN_FRONTEND=noninteractive
RUN apt-get update && apt-get install -y software-properties-common curl && rm -rf /var/lib/apt/lists/*
RUN add-apt-repository -y ppa:deadsnakes/ppa && apt-get install -y python3.12-venv
RUN python3.12 -m venv /v && /v/bin/pip install torch==2.5.1
"""),
    _sound("nodesource", DOCKERFILE, "https://github.com/nodesource/distributions", """
FROM nvidia/cuda:12.4.1-base-ubuntu22.04
RUN apt-get update && apt-get install -y curl && rm -rf /var/lib/apt/lists/*
RUN curl -fsSL https://deb.nodesource.com/setup_20.x | bash - && apt-get install -y nodejs
"""),
)  # fmt: skip
