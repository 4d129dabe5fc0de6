# docker build -t ttrace .                  an image with torch for CPUs and TTrace
# docker run --rm -v "$PWD:/work" ttrace check --reference "python train.py" --candidate "torchrun --nproc-per-node 2 train.py"
FROM debian:12 AS made
RUN apt-get update && apt-get install -y --no-install-recommends build-essential ca-certificates cmake ninja-build pkg-config \
  python3-dev python3-venv
WORKDIR /sources
COPY . .
RUN ./dev wheel

FROM python:3.12-slim-bookworm
# "" takes torch with CUDA from the default index.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN --mount=from=made,source=/sources/build/wheels,target=/wheels \
  pip install --no-cache-dir ${TORCH_INDEX:+--index-url $TORCH_INDEX} torch && pip install --no-cache-dir numpy /wheels/ttrace_torch-*.whl
WORKDIR /work
ENTRYPOINT ["ttrace"]
