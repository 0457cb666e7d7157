FROM nvidia/cuda:11.0-base
RUN apt-get update
