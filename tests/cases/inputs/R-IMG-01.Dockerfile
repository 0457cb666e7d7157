FROM nvidia/cuda:10.2-cudnn7-devel-ubuntu18.04
RUN apt-get update
