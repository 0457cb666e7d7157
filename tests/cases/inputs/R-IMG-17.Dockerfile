FROM nvidia/cuda:12.4.1-base-ubuntu22.04
RUN apt-get update && apt-get install -y cuda && rm -rf /var/lib/apt/lists/*
