# goal without a Python of your own:
#
#   docker build --build-arg UID="$(id -u)" --tag goal .
#   docker run --rm --volume "$PWD:/work" --volume goal-cache:/cache goal demo
#
# torch is the build for CPUs, a fraction of the size. For NVIDIA cards, which also need
# `docker run --gpus all`: --build-arg TORCH_INDEX=https://pypi.org/simple
# Not built yet by anyone: there was no Docker where this was written.

FROM python:3.12-slim AS build
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
WORKDIR /source
COPY pyproject.toml README.md LICENSE constraints.txt ./
COPY src ./src
RUN python -m venv /opt/goal \
    && /opt/goal/bin/pip install --no-cache-dir --disable-pip-version-check \
       --extra-index-url "$TORCH_INDEX" --constraint constraints.txt .

FROM python:3.12-slim
ARG UID=1000
# What it writes in /work belongs to this user; /cache keeps token banks and downloaded backbones.
RUN useradd --create-home --uid "$UID" goal \
    && install --directory --owner goal /work /cache
COPY --from=build /opt/goal /opt/goal
ENV PATH=/opt/goal/bin:$PATH GOAL_CACHE=/cache/goal HF_HOME=/cache/huggingface
USER goal
WORKDIR /work
ENTRYPOINT ["goal"]
CMD ["--help"]
