FROM nvidia/cuda:11.2.2-cudnn8-runtime-ubuntu20.04
ENV LANG=C.UTF-8
RUN apt-get update && apt-get install -y --no-install-recommends python3-pip && rm -rf /var/lib/apt/lists/*
RUN pip3 install --no-cache-dir tensorflow==2.10.0 'numpy<1.25' 'protobuf<3.20'
