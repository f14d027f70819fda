"""Reads the HTTP extenders that a policy names.

Source: upstream validateExtenders and scheduler.buildExtenders; k8s.io/kube-scheduler/config/v1 Extender, and
LegacyExtender in v1.22; client-go's rest.TLSConfigFor.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from extender.framework.policy_fields import LabelKey, NonNegative, Strict, duration, duration_seconds
from extender.framework.profile import Profile
from extender.model.extender_config import DEFAULT_TIMEOUT_SECONDS, ExtenderConfig, TLSConfig
from extender.model.requests import is_extended
from extender.plugins.node_resources.fit import NodeResourcesFitFilter
from extender.policy.faults import Faults

_NANOSECONDS = 1e-9


def _extended(value: str) -> str:
    if not is_extended(value):
        raise ValueError("expected an extended resource, like example.com/gpu")
    return value


def _url(value: str) -> str:
    try:
        url = urlsplit(value)
        usable = url.scheme in ("http", "https") and url.hostname and (url.port or 1)
    except ValueError:
        usable = False
    if not usable:
        raise ValueError("expected a URL, like http://127.0.0.1:8888/scheduler")
    return value


def _base64(value: str) -> str:
    try:
        base64.b64decode(value, validate=True)
    except binascii.Error:
        raise ValueError("expected PEM in base64") from None
    return value


Base64 = Annotated[str, AfterValidator(_base64)]
Weight = Annotated[int, Field(lt=2**63)]


class ManagedResourceSpec(Strict):
    name: Annotated[LabelKey, AfterValidator(_extended)]
    """An extended resource; only pods that request one of these are sent to the extender."""
    ignored_by_scheduler: bool = False
    """If true, NodeResourcesFit ignores the resource and leaves it to the extender."""


class TLSConfigSpec(Strict):
    insecure: bool = False
    """If true, the extender's certificate is not verified."""
    server_name: str = ""
    """The name in the extender's certificate, if it differs from the host of the URL."""
    cert_file: str = ""
    """The client certificate, PEM."""
    key_file: str = ""
    """Its key, PEM."""
    ca_file: str = ""
    """The CA certificates to trust, PEM."""
    cert_data: Base64 = ""
    """The client certificate, PEM in base64."""
    key_data: Base64 = ""
    """The key of the client certificate, PEM in base64."""
    ca_data: Base64 = ""
    """The CA certificates to trust, PEM in base64."""

    @property
    def has_ca(self) -> bool:
        return bool(self.ca_file or self.ca_data)

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.insecure and self.has_ca:
            raise ValueError("insecure skips verification, so caFile and caData must not be set")
        if bool(self.cert_file or self.cert_data) != bool(self.key_file or self.key_data):
            raise ValueError("a client certificate and its key must be given together")
        return self

    def config(self, *, verified: bool) -> TLSConfig:
        files = {name: Path(text) for name in ("ca_file", "cert_file", "key_file") if (text := getattr(self, name))}
        data = {name: base64.b64decode(getattr(self, name)) for name in ("ca_data", "cert_data", "key_data")}
        material: dict[str, Any] = {**files, **data}
        return TLSConfig(verified and not self.insecure, self.server_name, **material)


class _Extender(Strict):
    url_prefix: Annotated[str, AfterValidator(_url)]
    """The URL of the extender, to which the verbs are appended."""
    filter_verb: str = ""
    """The path of filter; without it the extender is not called for filter."""
    preempt_verb: str = ""
    """The path of preempt; without it the extender is not called for preempt."""
    prioritize_verb: str = ""
    """The path of prioritize; without it the extender is not called for prioritize."""
    weight: Weight = 0
    """The weight of its scores."""
    bind_verb: str = ""
    """The path of bind; at most one extender may bind."""
    tls_config: TLSConfigSpec | None = None
    """Certificates and names for TLS."""
    node_cache_capable: bool = False
    """If true, requests hold node names instead of whole nodes."""
    managed_resources: tuple[ManagedResourceSpec, ...] = ()
    """The resources that the extender manages; without any it is called for every pod."""
    ignorable: bool = False
    """If true, pods are scheduled without the extender while it does not answer."""

    def _config(self, timeout_seconds: float, *, enable_https: bool) -> ExtenderConfig:
        tls = self.tls_config or TLSConfigSpec()
        managed = self.managed_resources
        return ExtenderConfig(
            self.url_prefix,
            self.filter_verb,
            self.prioritize_verb,
            self.preempt_verb,
            self.bind_verb,
            self.weight,
            # As in kube-scheduler, enableHTTPS without a CA accepts any certificate.
            tls.config(verified=tls.has_ca or not enable_https),
            timeout_seconds or DEFAULT_TIMEOUT_SECONDS,
            self.node_cache_capable,
            frozenset(resource.name for resource in managed),
            frozenset(resource.name for resource in managed if resource.ignored_by_scheduler),
            self.ignorable,
        )


class ExtenderSpec(_Extender):
    """An extender in a KubeSchedulerConfiguration."""

    enable_https: bool = Field(default=False, alias="enableHTTPS")
    """If true, calls use TLS."""
    http_timeout: Annotated[str, AfterValidator(duration(0))] = "0"
    """The time to wait for an answer, like 5s; 0 means 5s."""

    @property
    def config(self) -> ExtenderConfig:
        return self._config(duration_seconds(self.http_timeout), enable_https=self.enable_https)


class LegacyExtenderSpec(_Extender):
    """An extender in a classic Policy."""

    enable_https: bool = False
    """If true, calls use TLS."""
    http_timeout: NonNegative = 0
    """The time to wait for an answer, in nanoseconds; 0 means 5 s."""

    @property
    def config(self) -> ExtenderConfig:
        return self._config(self.http_timeout * _NANOSECONDS, enable_https=self.enable_https)


def read_extenders(specs: Sequence[ExtenderSpec | LegacyExtenderSpec], faults: Faults) -> tuple[ExtenderConfig, ...]:
    """Returns the extenders in the order in which they are called: ignorable extenders come last."""
    managed: set[str] = set()
    for index, spec in enumerate(specs):
        path = f"extenders[{index}]"
        if spec.prioritize_verb and spec.weight <= 0:
            faults.add(f"{path}.weight", f"expected a positive weight with prioritizeVerb, got {spec.weight}")
        for position, resource in enumerate(spec.managed_resources):
            if resource.name in managed:
                faults.add(f"{path}.managedResources[{position}].name", f"{resource.name} is already managed")
            managed.add(resource.name)
    if (binders := sum(bool(spec.bind_verb) for spec in specs)) > 1:
        faults.add("extenders", f"expected at most one extender with bindVerb, got {binders}")
    return tuple(spec.config for spec in sorted(specs, key=lambda spec: spec.ignorable))


def ignoring(profile: Profile, resources: Collection[str]) -> Profile:
    """Returns the profile with a NodeResourcesFit that ignores `resources`, because extenders manage them.

    As upstream, `resources` replaces the ignoredResources in the plugin's arguments.
    """
    if not resources:
        return profile
    predicates = [
        replace(rule, ignored_resources=frozenset(resources)) if isinstance(rule, NodeResourcesFitFilter) else rule
        for rule in profile.predicates
    ]
    return replace(profile, predicates=predicates)
