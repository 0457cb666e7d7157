FROM python:3.11-alpine
RUN pip install --no-cache-dir torch==2.5.1
