FROM nvidia/cuda:12.4.1-devel-ubuntu22.04
RUN apt-get update && apt-get install -y --no-install-recommends python3-pip python3-venv && rm -rf /var/lib/apt/lists/*
RUN pip3 install torch==2.3.0 --index-url https://download.pytorch.org/whl/cu118
RUN pip3 install --no-build-isolation flash-attn==2.5.8
