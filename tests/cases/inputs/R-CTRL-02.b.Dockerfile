FROM nvidia/cuda:12.6.3-cudnn-devel-ubuntu22.04 AS build
ENV DEBIAN_FRONTEND=noninteractive
RUN apt-get update && apt-get install -y --no-install-recommends python3 python3-pip git && rm -rf /var/lib/apt/lists/*
ENV TORCH_CUDA_ARCH_LIST="8.0;8.6;9.0+PTX"
RUN pip3 install --no-cache-dir torch==2.7.1 ninja
COPY . /src
RUN pip3 install --no-cache-dir --no-build-isolation /src
FROM nvidia/cuda:12.6.3-cudnn-runtime-ubuntu22.04
ENV LANG=C.UTF-8
COPY --from=build /usr/local/lib/python3.10/dist-packages /usr/local/lib/python3.10/dist-packages
