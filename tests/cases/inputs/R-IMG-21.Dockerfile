FROM python:3.11-slim
ENV HF_TOKEN=hf_this_is_not_a_real_token
RUN pip install torch==2.5.1
