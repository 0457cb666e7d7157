FROM pytorch/pytorch:2.1.0-cuda12.1-cudnn8-runtime
RUN pip install --no-cache-dir git+https://github.com/NVIDIA/apex.git
RUN git clone https://github.com/open-mmlab/mmcv && cd mmcv && MMCV_WITH_OPS=1 python setup.py develop
