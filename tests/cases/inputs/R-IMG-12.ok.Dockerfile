FROM nvidia/cuda:12.4.1-base-ubuntu22.04
ENV LANG=C.UTF-8
RUN apt-get update && apt-get install -y --no-install-recommends python3-pip python3-venv && rm -rf /var/lib/apt/lists/*
RUN pip3 install --no-cache-dir torch==2.5.1
