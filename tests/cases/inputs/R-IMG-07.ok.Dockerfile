FROM nvidia/cuda:12.4.1-cudnn-runtime-ubuntu22.04
ENV LANG=C.UTF-8
