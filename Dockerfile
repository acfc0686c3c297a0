# syntax=docker/dockerfile:1
# Run with a read-only root and a volume for the data:
#   docker run --read-only -v kgw-data:/var/lib/kgw -p 9092:9092 kgw \
#       --listen 0.0.0.0:9092 --advertise localhost:9092

# Pin the base image by digest where it is built: --build-arg PYTHON_IMAGE=python:3.11-slim@sha256:...
# The digest is the builder's to look up and to keep up to date; the tag alone may move.
ARG PYTHON_IMAGE=python:3.11-slim

FROM ${PYTHON_IMAGE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN ["python", "-m", "venv", "/opt/kgw"]
COPY requirements/run.txt /src/requirements/run.txt
RUN ["/opt/kgw/bin/pip", "install", "--require-hashes", "--requirement", "/src/requirements/run.txt"]
COPY pyproject.toml hatch_build.py README.md LICENSE /src/
COPY kgw /src/kgw
RUN ["/opt/kgw/bin/pip", "install", "--no-deps", "--no-build-isolation", "--no-index", "/src"]
# A folder of the right owner: a new volume takes its owner from it. The program form of RUN has no &&.
# hadolint ignore=DL3059
RUN ["mkdir", "/data"]

FROM ${PYTHON_IMAGE}
COPY --from=build /opt/kgw /opt/kgw
COPY --from=build --chown=10001:10001 /data /var/lib/kgw
ENV PATH=/opt/kgw/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 10001:10001
VOLUME ["/var/lib/kgw"]
EXPOSE 9092
STOPSIGNAL SIGTERM
# Connects as a client would; no shell, no other tool.
HEALTHCHECK --interval=10s --timeout=5s --start-period=5s \
    CMD ["kgw", "doctor", "127.0.0.1:9092", "--json"]
ENTRYPOINT ["kgw", "serve", "--data-dir", "/var/lib/kgw"]
CMD ["--listen", "0.0.0.0:9092"]
