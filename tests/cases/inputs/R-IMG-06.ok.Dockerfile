ARG CUDA=12.4.1
ARG OS=ubuntu22.04
FROM nvidia/cuda:${CUDA}-base-${OS}
ENV LANG=C.UTF-8
CMD ["nvidia-smi"]
