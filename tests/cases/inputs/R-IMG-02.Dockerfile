FROM nvidia/cuda:11.4.0-devel-ubuntu20.04
RUN apt-get update
