FROM nvidia/cuda:latest
RUN apt-get update
