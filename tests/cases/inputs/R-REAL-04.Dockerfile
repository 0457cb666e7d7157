FROM pytorch/pytorch:1.6.0-cuda10.1-cudnn7-devel
ENV TORCH_CUDA_ARCH_LIST="6.0 6.1 7.0+PTX"
RUN pip install mmcv-full==1.3.17
