FROM pytorch/pytorch:2.3.0-cuda12.1-cudnn8-runtime
ENV LANG=C.UTF-8
COPY . /app
