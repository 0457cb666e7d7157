FROM nvidia/cuda:12.8.1-devel-ubuntu22.04 AS build
RUN nvcc --version
FROM nvidia/cuda:11.8.0-runtime-ubuntu22.04
COPY --from=build /usr/bin/env /x
RUN apt-get update && apt-get install -y python3-pip && pip3 install torch==2.1.0 --index-url https://download.pytorch.org/whl/cu118
