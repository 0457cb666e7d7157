FROM continuumio/miniconda3:23.5.2-0
RUN conda install -y python=3.10 pytorch==2.1.0 torchvision==0.16.0 pytorch-cuda=11.8 -c pytorch -c nvidia
