FROM pytorch/pytorch:2.3.0-cuda12.4-cudnn8-runtime
