# syntax=docker/dockerfile:1
# The program form of RUN has no &&.
# hadolint global ignore=DL3059
# How to run it, and what was tried: docs/containers.md.

# Pin it by digest where the image is built: --build-arg PYTHON_IMAGE=python:3.11-slim-bookworm@sha256:...
# The digest is the builder's to look up and to keep up to date; the tag alone may move.
ARG PYTHON_IMAGE=docker.io/library/python:3.11-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
# Two environments: what builds stays here, what runs has no pip.
RUN ["python", "-m", "venv", "/build"]
RUN ["python", "-m", "venv", "--without-pip", "/opt/kgw"]
COPY requirements/run.txt requirements/image.txt /src/requirements/
RUN ["/build/bin/pip", "install", "--require-hashes", "--requirement", "/src/requirements/run.txt"]
RUN ["/build/bin/pip", "--python", "/opt/kgw/bin/python", "install", \
     "--require-hashes", "--requirement", "/src/requirements/image.txt"]
COPY pyproject.toml hatch_build.py README.md LICENSE /src/
COPY requirements/kgw.cdx.json /src/requirements/
COPY docs/reference/kgw.1 /src/docs/reference/
COPY kgw /src/kgw
# What `kgw --version` tells beside the version.
ARG KGW_COMMIT=""
ENV KGW_COMMIT=${KGW_COMMIT}
RUN ["/build/bin/pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index", \
     "--wheel-dir", "/src/dist", "/src"]
RUN ["/build/bin/pip", "--python", "/opt/kgw/bin/python", "install", \
     "--no-deps", "--no-index", "--find-links", "/src/dist", "kgw-broker"]
COPY scripts/image_root.py /src/
RUN ["python", "/src/image_root.py", "/opt/kgw", "/root-of-image"]
# A folder of the right owner: a new volume takes its owner from it.
RUN ["mkdir", "/data"]

# Python, kgw, and what they load: no shell, no package manager, nothing to build with.
FROM scratch
COPY --from=build /root-of-image /
COPY --from=build --chown=10001:10001 /data /var/lib/kgw
ENV PATH=/opt/kgw/bin \
    LANG=C.UTF-8 \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    KGW_LISTENERS=0.0.0.0:9092 \
    KGW_LISTENERS_WITHOUT_LOGIN=true \
    KGW_ADMIN_LISTENERS=127.0.0.1:9644
USER 10001:10001
WORKDIR /var/lib/kgw
VOLUME ["/var/lib/kgw"]
EXPOSE 9092
STOPSIGNAL SIGTERM
# Asks the admin side whether it is ready; no shell, no other tool.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s \
    CMD ["python", "-m", "kgw.admin.probe"]
ENTRYPOINT ["kgw", "serve", "--data-dir", "/var/lib/kgw"]
# Last, so that a commit that changes nothing else changes nothing above it.
ARG KGW_COMMIT=""
ARG KGW_VERSION=0.1.0
# Where the sources are of whoever publishes the image.
ARG KGW_SOURCE=""
LABEL org.opencontainers.image.title="kgw" \
      org.opencontainers.image.description="An asyncio server that Kafka clients cannot tell from a broker" \
      org.opencontainers.image.version="${KGW_VERSION}" \
      org.opencontainers.image.revision="${KGW_COMMIT}" \
      org.opencontainers.image.source="${KGW_SOURCE}" \
      org.opencontainers.image.licenses="Apache-2.0"
