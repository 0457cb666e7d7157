FROM nvidia/cuda:12.1.1-devel-ubuntu22.04
ENV TORCH_CUDA_ARCH_LIST=8.0;8.6 LANG=C.UTF-8
RUN apt-get update && apt-get install -y --no-install-recommends python3-pip python3-venv && rm -rf /var/lib/apt/lists/*
RUN pip3 install --no-cache-dir torch==2.3.0 'numpy<2' packaging ninja wheel
RUN pip3 install --no-cache-dir --no-build-isolation flash-attn==2.5.8
