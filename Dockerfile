# The operator's image, and the image of the Python example activities: one virtual environment, no build tools in it.
#
# Builds with BuildKit, with Docker's classic builder and with buildah (so: no RUN --mount, no here-documents). BASE may
# be any glibc image with Python 3.13, its venv module, and GNU coreutils 8.31 (2019) or later; the expression library has no wheels
# for musl (Alpine).
#
# One version of Python in all images: how deep JSON may nest before Python gives up depends on it, and `make test-python` runs
# the tests on it. The digest is that of Python 3.13.14 on Debian 13 for all platforms, as docker-library/repo-info publishes
# it in repos/python/remote/3.13-slim-trixie.md. To update: take the new digest from there, or from
# `docker buildx imagetools inspect python:3.13-slim-trixie`.
ARG BASE=python:3.13-slim-trixie@sha256:9662417aace5ae7b8e2609cce472b72a8958e134ba372808abe9cc1a0c0125e6

# --- Build tools, kept out of the final image ---------------------------------------------------------------------
FROM ${BASE} AS tools
RUN python3 -c "import sys; sys.exit(None if sys.version_info[:2] == (3, 13) else 'BASE must have Python 3.13')"
# How to reach the package index belongs to the place of the build, not to the project: these take effect when given as
# --build-arg and leave nothing in the image. HTTP_PROXY and its relatives are known to the builders themselves.
ARG PIP_CERT
ARG PIP_DEFAULT_TIMEOUT
ARG PIP_EXTRA_INDEX_URL
ARG PIP_FIND_LINKS
ARG PIP_INDEX_URL
ARG PIP_TRUSTED_HOST
ARG REQUESTS_CA_BUNDLE
ARG SSL_CERT_FILE
# uv only reads the lock here; pip installs, so that one set of settings serves both.
RUN python3 -m venv /tools \
 && /tools/bin/pip install --disable-pip-version-check --no-cache-dir --no-compile uv==0.13.8 hatchling==1.33.0

# --- The locked dependencies: this layer changes only with the list of them ---------------------------------------
FROM tools AS lock
WORKDIR /lock
COPY pyproject.toml uv.lock ./
RUN /tools/bin/uv export --quiet --frozen --no-dev --extra operator --extra console --no-emit-project --no-config --output-file requirements.txt

# Reached by the content of requirements.txt alone: an edit of pyproject.toml that changes no dependency stops above.
FROM tools AS dependencies
# A build argument ends with its stage.
ARG PIP_CERT
ARG PIP_DEFAULT_TIMEOUT
ARG PIP_EXTRA_INDEX_URL
ARG PIP_FIND_LINKS
ARG PIP_INDEX_URL
ARG PIP_TRUSTED_HOST
ARG REQUESTS_CA_BUNDLE
ARG SSL_CERT_FILE
COPY --from=lock /lock/requirements.txt /requirements.txt
RUN python3 -m venv --without-pip /venv \
 && /tools/bin/pip --python /venv/bin/python install --disable-pip-version-check --no-cache-dir --no-compile \
      --no-deps --require-hashes --requirement /requirements.txt \
# Bytecode is compiled now, for a container whose file system is read-only at run time. "unchecked-hash" makes it valid
# whatever the builder does to time stamps, and saves a stat per module at start-up.
 && /venv/bin/python -m compileall -q -j 0 --invalidation-mode unchecked-hash /venv/lib

# --- Perdure itself, in a tree of its own that is laid over /venv: a source change rebuilds only from here --------
FROM dependencies AS application
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY operator operator
RUN /tools/bin/pip wheel --disable-pip-version-check --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheels . \
 && /tools/bin/pip --python /venv/bin/python install --disable-pip-version-check --no-cache-dir --no-compile \
      --no-deps --no-index --prefix /overlay /wheels/*.whl \
 && /venv/bin/python -m compileall -q --invalidation-mode unchecked-hash \
      -s /overlay -p /venv /overlay/lib

# --- What ships ---------------------------------------------------------------------------------------------------
FROM ${BASE}
LABEL org.opencontainers.image.title="Perdure" \
      org.opencontainers.image.description="Durable workflows with nothing but Kubernetes" \
      org.opencontainers.image.licenses="Apache-2.0"
# The official Python images ship no bytecode of the standard library, and a read-only container could never keep it:
# without this line every start compiles it again. Debian's Python includes the bytecode, so the line does nothing there.
# The passwd line gives the numeric user a name, which Python's getpass insists on.
RUN python3 -c "import compileall, re, sysconfig; compileall.compile_dir(sysconfig.get_path('stdlib'), quiet=2, workers=0, rx=re.compile(r'/(test|tests|idlelib|tkinter|turtledemo|site-packages|dist-packages)/'))" \
 && echo 'perdure:x:65532:65532:Perdure:/tmp:/usr/sbin/nologin' >> /etc/passwd \
 && echo 'perdure:x:65532:' >> /etc/group
COPY --from=dependencies /venv /venv
COPY --from=application /overlay /venv
# A read-only root leaves nowhere to write bytecode to; the attempt would only cost time. Logs must not wait in a buffer.
ENV PATH=/venv/bin:$PATH \
    HOME=/tmp \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
# The commit that the image is built from: --build-arg REVISION=$(git rev-parse HEAD). Only the metric perdure_build_info shows it.
ARG REVISION=
LABEL org.opencontainers.image.revision="${REVISION}"
ENV PERDURE_REVISION="${REVISION}"
USER 65532:65532
WORKDIR /tmp
EXPOSE 8080
ENTRYPOINT ["perdure-operator"]
