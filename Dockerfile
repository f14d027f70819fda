# `make image` builds this in build/image, where `make image-context` puts exactly the files that are copied here.
# The index of all architectures. Dependabot proposes the next digest when a security fix has changed the image.
FROM python:3.13-slim@sha256:7c61056e61ac89e852de05f3dc6fa51a6dd2181797bceed46aa725dd7cb2cd3b AS base

FROM base AS build
WORKDIR /src
COPY constraints.txt ./
# What is installed is what constraints.txt names, to the byte; pip checks the hashes.
RUN python -m venv /opt/extender && /opt/extender/bin/pip install --no-cache-dir --require-hashes -r constraints.txt
COPY *.whl ./
RUN /opt/extender/bin/pip install --no-cache-dir --no-deps ./*.whl

FROM base
COPY --from=build /opt/extender /opt/extender
COPY LICENSE NOTICE /opt/extender/
ENV PYTHONUNBUFFERED=1
USER 65532:65532
EXPOSE 8888
ENTRYPOINT ["/opt/extender/bin/extender"]
# On loopback, for whoever may call bind decides where pods run.
CMD ["serve"]
