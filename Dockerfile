FROM python:3.13-slim AS build
WORKDIR /src
COPY setup.cfg pyproject.toml README.md ./
COPY extender extender
RUN python -m venv /opt/extender && /opt/extender/bin/pip install --no-cache-dir .

FROM python:3.13-slim
COPY --from=build /opt/extender /opt/extender
ENV PYTHONUNBUFFERED=1
USER 65532:65532
EXPOSE 8888
ENTRYPOINT ["/opt/extender/bin/extender"]
# On loopback, for whoever may call bind decides where pods run.
CMD ["serve"]
