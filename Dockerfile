FROM python:3.13-slim AS build
WORKDIR /src
COPY setup.cfg pyproject.toml README.md constraints.txt ./
# What is installed is what constraints.txt names, to the byte; pip checks the hashes.
RUN python -m venv /opt/extender && /opt/extender/bin/pip install --no-cache-dir --require-hashes -r constraints.txt
COPY extender extender
RUN /opt/extender/bin/pip install --no-cache-dir --no-deps .

FROM python:3.13-slim
COPY --from=build /opt/extender /opt/extender
COPY LICENSE NOTICE /opt/extender/
ENV PYTHONUNBUFFERED=1
USER 65532:65532
EXPOSE 8888
ENTRYPOINT ["/opt/extender/bin/extender"]
# On loopback, for whoever may call bind decides where pods run.
CMD ["serve"]
