"""Reads the HTTP extenders that a policy names.

Source: upstream validateExtenders and scheduler.buildExtenders; k8s.io/kube-scheduler/config/v1 Extender, and
LegacyExtender in v1.22; client-go's rest.TLSConfigFor.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, model_validator

from extender.framework.policy_fields import LabelKey, Strict, duration, duration_seconds
from extender.framework.profile import Profile
from extender.model.extender_config import DEFAULT_TIMEOUT_SECONDS, ExtenderConfig, TLSConfig
from extender.model.requests import is_extended
from extender.plugins.node_resources_fit import NodeResourcesFitFilter
from extender.policy.faults import Faults, model_in

_NANOSECONDS = 1e-9
_NO_LIMIT_SECONDS = 86400.0


def _extended(value: str) -> str:
    if not is_extended(value):
        raise ValueError("expected an extended resource, like example.com/gpu")
    return value


def _base64(value: object) -> object:
    """Decodes PEM as Go does: it ignores line breaks, and takes a list of bytes as well."""
    try:
        if isinstance(value, list):
            return base64.b64encode(bytes(value)).decode()
        if isinstance(value, str):
            base64.b64decode(value.replace("\r", "").replace("\n", ""), validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise ValueError("expected PEM in base64") from None
    return value


Base64 = Annotated[str, BeforeValidator(_base64)]
Weight = Annotated[int, Field(ge=-(2**63), lt=2**63)]


class ManagedResourceSpec(Strict):
    name: Annotated[LabelKey, AfterValidator(_extended)] = Field(default="", validate_default=True)
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
        return self

    def config(self, *, verified: bool) -> TLSConfig:
        files = {name: Path(text) for name in ("ca_file", "cert_file", "key_file") if (text := getattr(self, name))}
        data = {name: base64.b64decode(getattr(self, name)) for name in ("ca_data", "cert_data", "key_data")}
        material: dict[str, Any] = {**files, **data}
        return TLSConfig(verified and not self.insecure, self.server_name, **material)


class _Extender(Strict):
    url_prefix: str = ""
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
            # As in Go, 0 means the default, and a negative number means no limit.
            _NO_LIMIT_SECONDS if timeout_seconds < 0 else timeout_seconds or DEFAULT_TIMEOUT_SECONDS,
            self.node_cache_capable,
            frozenset(resource.name for resource in managed),
            frozenset(resource.name for resource in managed if resource.ignored_by_scheduler),
            self.ignorable,
        )


class ExtenderSpec(_Extender):
    """An extender in a KubeSchedulerConfiguration."""

    never_null: ClassVar[frozenset[str]] = frozenset(("httpTimeout",))

    enable_https: bool = Field(default=False, alias="enableHTTPS")
    """If true, calls use TLS."""
    http_timeout: Annotated[str, AfterValidator(duration())] = "0"
    """The time to wait for an answer, like 5s; 0 means 5s, less than 0 means no limit."""

    @property
    def config(self) -> ExtenderConfig:
        return self._config(duration_seconds(self.http_timeout), enable_https=self.enable_https)


class LegacyExtenderSpec(_Extender):
    """An extender in a classic Policy; `in_any_case` finds its fields."""

    enable_https: bool = False
    """If true, calls use TLS."""
    http_timeout: Annotated[int, Field(ge=-(2**63), lt=2**63)] = 0
    """The time to wait for an answer, in nanoseconds; 0 means 5 s, less than 0 means no limit."""

    @property
    def config(self) -> ExtenderConfig:
        return self._config(self.http_timeout * _NANOSECONDS, enable_https=self.enable_https)


def in_any_case(value: object, model: type[BaseModel]) -> object:
    """Returns the value with the fields that the model knows, under their own names.

    This is how Go decoded the extenders of a classic Policy until v1.22: names of fields in upper or lower case, and
    without an error for unknown ones. Of two spellings the last counts.
    """
    if isinstance(value, list):
        return [in_any_case(item, model) for item in value]
    if not isinstance(value, Mapping):
        return value
    fields = {field.alias.lower(): field for field in model.model_fields.values() if field.alias}
    known = ((fields[key.lower()], item) for key, item in value.items() if key.lower() in fields)
    return {
        field.alias: in_any_case(item, inner) if (inner := model_in(field.annotation)) else item
        for field, item in known
        if item is not None
    }


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
