FROM nvidia/cuda:12.4.1-cudnn8-runtime-ubuntu22.04
