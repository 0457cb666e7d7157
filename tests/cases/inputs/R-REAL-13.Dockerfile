FROM python:3.11-slim-bookworm
RUN pip install uv && uv pip install --system torch==2.4.1 --index-url https://download.pytorch.org/whl/cu118
