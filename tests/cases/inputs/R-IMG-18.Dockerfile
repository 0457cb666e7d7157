FROM python:3.11-slim-bookworm
ENV PYTHONUNBUFFERED=1
RUN pip install --no-cache-dir torch==2.5.1
COPY . /app
CMD ["python","/app/main.py"]
