FROM continuumio/miniconda3
RUN conda create -y -n x python=3.10
RUN conda activate x
RUN pip install torch==2.1.0
