"""The other extenders that a policy names. Source: upstream validateExtenders, scheduler.buildExtenders.

Source: k8s.io/kube-scheduler/config/v1, Extender, and in v1.22 LegacyExtender; client-go's rest.TLSConfigFor.
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

from extender.framework.profile import Profile
from extender.framework.schema import LabelKey, NonNegative, Strict, duration, duration_seconds
from extender.model.extenders import DEFAULT_TIMEOUT_SECONDS, ExtenderConfig, TLSConfig
from extender.model.requests import is_extended
from extender.plugins.node_resources.fit import NodeResourcesFitFilter
from extender.policy.faults import Faults

_NANOSECONDS = 1e-9


def _extended(value: str) -> str:
    if not is_extended(value):
        raise ValueError("want an extended resource, like example.com/gpu")
    return value


def _url(value: str) -> str:
    try:
        url = urlsplit(value)
        usable = url.scheme in ("http", "https") and url.hostname and (url.port or 1)
    except ValueError:
        usable = False
    if not usable:
        raise ValueError("want a URL, like http://127.0.0.1:8888/scheduler")
    return value


def _base64(value: str) -> str:
    try:
        base64.b64decode(value, validate=True)
    except binascii.Error:
        raise ValueError("want PEM in base64") from None
    return value


Base64 = Annotated[str, AfterValidator(_base64)]
Weight = Annotated[int, Field(lt=2**63)]


class ManagedResourceSpec(Strict):
    name: Annotated[LabelKey, AfterValidator(_extended)]
    """An extended resource: only pods that ask for one of these are sent."""
    ignored_by_scheduler: bool = False
    """Has NodeResourcesFit leave it to the extender."""


class TLSConfigSpec(Strict):
    insecure: bool = False
    """Takes any certificate for good."""
    server_name: str = ""
    """The name that the certificate must have, where it is not the host of the URL."""
    cert_file: str = ""
    """The client certificate, PEM."""
    key_file: str = ""
    """Its key, PEM."""
    ca_file: str = ""
    """Whom to trust, PEM."""
    cert_data: Base64 = ""
    """The client certificate, PEM in base64."""
    key_data: Base64 = ""
    """Its key, PEM in base64."""
    ca_data: Base64 = ""
    """Whom to trust, PEM in base64."""

    @property
    def has_ca(self) -> bool:
        return bool(self.ca_file or self.ca_data)

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.insecure and self.has_ca:
            raise ValueError("insecure looks at no certificate, and so takes neither caFile nor caData")
        if bool(self.cert_file or self.cert_data) != bool(self.key_file or self.key_data):
            raise ValueError("a client certificate and its key are given together")
        return self

    def config(self, *, verified: bool) -> TLSConfig:
        files = {name: Path(text) for name in ("ca_file", "cert_file", "key_file") if (text := getattr(self, name))}
        data = {name: base64.b64decode(getattr(self, name)) for name in ("ca_data", "cert_data", "key_data")}
        given: dict[str, Any] = {**files, **data}
        return TLSConfig(verified and not self.insecure, self.server_name, **given)


class _Extender(Strict):
    url_prefix: Annotated[str, AfterValidator(_url)]
    """The URL at which it listens; the verbs are added to it."""
    filter_verb: str = ""
    """The path of filter; none: it is not asked."""
    preempt_verb: str = ""
    """The path of preempt; none: it is not asked."""
    prioritize_verb: str = ""
    """The path of prioritize; none: it is not asked."""
    weight: Weight = 0
    """The weight of its scores."""
    bind_verb: str = ""
    """The path of bind; one extender at most binds."""
    tls_config: TLSConfigSpec | None = None
    """Certificates and names for TLS."""
    node_cache_capable: bool = False
    """Sends it names alone, not whole nodes."""
    managed_resources: tuple[ManagedResourceSpec, ...] = ()
    """The resources that it looks after; none: it is asked about every pod."""
    ignorable: bool = False
    """Places pods without it when it does not answer."""

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
            # As upstream: who says HTTPS and names no authority trusts everyone.
            tls.config(verified=tls.has_ca or not enable_https),
            timeout_seconds or DEFAULT_TIMEOUT_SECONDS,
            self.node_cache_capable,
            frozenset(resource.name for resource in managed),
            frozenset(resource.name for resource in managed if resource.ignored_by_scheduler),
            self.ignorable,
        )


class ExtenderSpec(_Extender):
    """In a KubeSchedulerConfiguration."""

    enable_https: bool = Field(default=False, alias="enableHTTPS")
    """Asks it by TLS."""
    http_timeout: Annotated[str, AfterValidator(duration(0))] = "0"
    """The time to wait for an answer, as 5s; 0: 5 s."""

    @property
    def config(self) -> ExtenderConfig:
        return self._config(duration_seconds(self.http_timeout), enable_https=self.enable_https)


class LegacyExtenderSpec(_Extender):
    """In a Policy. `http_timeout`: nanoseconds."""

    enable_https: bool = False
    """Asks it by TLS."""
    http_timeout: NonNegative = 0
    """The time to wait for an answer, in nanoseconds; 0: 5 s."""

    @property
    def config(self) -> ExtenderConfig:
        return self._config(self.http_timeout * _NANOSECONDS, enable_https=self.enable_https)


def read_extenders(specs: Sequence[ExtenderSpec | LegacyExtenderSpec], faults: Faults) -> tuple[ExtenderConfig, ...]:
    """Returns the extenders in the order in which they are asked: ignorable ones come last."""
    managed: set[str] = set()
    for index, spec in enumerate(specs):
        path = f"extenders[{index}]"
        if spec.prioritize_verb and spec.weight <= 0:
            faults.add(f"{path}.weight", f"want a positive weight for prioritizeVerb, not {spec.weight}")
        for position, resource in enumerate(spec.managed_resources):
            if resource.name in managed:
                faults.add(f"{path}.managedResources[{position}].name", f"{resource.name} is managed already")
            managed.add(resource.name)
    if (binders := sum(bool(spec.bind_verb) for spec in specs)) > 1:
        faults.add("extenders", f"want one that binds (bindVerb) at most, not {binders}")
    return tuple(spec.config for spec in sorted(specs, key=lambda spec: spec.ignorable))


def ignoring(profile: Profile, resources: Collection[str]) -> Profile:
    """Returns the profile, with these extended resources left to the extenders that manage them.

    They take the place of the ignoredResources of NodeResourcesFit's arguments, as upstream.
    """
    if not resources:
        return profile
    predicates = [
        replace(each, ignored_resources=frozenset(resources)) if isinstance(each, NodeResourcesFitFilter) else each
        for each in profile.predicates
    ]
    return replace(profile, predicates=predicates)
