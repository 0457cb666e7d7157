FROM pytorch/pytorch:2.1.0-cuda12.1-cudnn8-runtime
RUN pip install --no-cache-dir torch==2.3.0 torchvision==0.18.0
