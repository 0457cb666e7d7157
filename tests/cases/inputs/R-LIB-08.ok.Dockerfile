FROM nvidia/cuda:12.4.1-cudnn-runtime-ubuntu22.04
ENV LANG=C.UTF-8
RUN apt-get update && apt-get install -y --no-install-recommends python3-pip && rm -rf /var/lib/apt/lists/*
RUN pip3 install --no-cache-dir ctranslate2==4.5.0 faster-whisper==1.1.0
