# `make image` builds this in build/image, where `make image-context` puts exactly the files that are copied here.
# To build the same bytes each time, give the base image by digest: --build-arg BASE=python:3.13-slim@sha256:...
ARG BASE=python:3.13-slim
FROM ${BASE} AS build
WORKDIR /src
COPY constraints.txt ./
# What is installed is what constraints.txt names, to the byte; pip checks the hashes.
RUN python -m venv /opt/extender && /opt/extender/bin/pip install --no-cache-dir --require-hashes -r constraints.txt
COPY *.whl ./
RUN /opt/extender/bin/pip install --no-cache-dir --no-deps ./*.whl

FROM ${BASE}
COPY --from=build /opt/extender /opt/extender
COPY LICENSE NOTICE /opt/extender/
ENV PYTHONUNBUFFERED=1
USER 65532:65532
EXPOSE 8888
ENTRYPOINT ["/opt/extender/bin/extender"]
# On loopback, for whoever may call bind decides where pods run.
CMD ["serve"]
