FROM nvidia/cuda:11.2.0-base-ubuntu20.04
RUN apt-get update
