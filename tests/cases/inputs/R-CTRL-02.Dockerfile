FROM pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime
ENV LANG=C.UTF-8
WORKDIR /app
COPY requirements.txt .
RUN pip install --no-cache-dir -r requirements.txt
COPY . .
USER 1000
CMD ["python", "main.py"]
