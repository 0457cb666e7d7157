FROM nvidia/cuda:11.2.2-devel-centos8
RUN yum install -y git
