FROM nvidia/cuda:12.8.1-base-ubuntu24.04
ENV LANG=C.UTF-8
RUN apt-get update && apt-get install -y --no-install-recommends python3-pip python3-venv && rm -rf /var/lib/apt/lists/*
RUN pip3 install --no-cache-dir --break-system-packages torch==2.7.1
