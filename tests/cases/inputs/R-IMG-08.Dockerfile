FROM nvidia/cuda:11.8.0-cudnn8-devel-ubuntu24.04
