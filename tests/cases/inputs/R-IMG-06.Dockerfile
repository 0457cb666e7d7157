ARG CUDA=10.2
ARG OS=ubuntu18.04
FROM nvidia/cuda:${CUDA}-devel-${OS}
