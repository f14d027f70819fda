"""Reads policies from YAML or JSON. A policy is either a KubeSchedulerConfiguration or a classic Policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from extender.errors import ConfigurationError, MalformedInput
from extender.policy.classic.classic_reader import read_policy
from extender.policy.configuration.profile_reader import read_configuration
from extender.policy.faults import Faults
from extender.policy.library import Library
from extender.policy.policy import Policy
from extender.runtime import strict_yaml

_READERS: Mapping[str, Callable[[object, Library, Faults], Policy | None]] = {
    "KubeSchedulerConfiguration": read_configuration,
    "Policy": read_policy,
}
_CONFIG_MAP = "ConfigMap"


def load(text: bytes | str, library: Library | None = None) -> Policy:
    """Returns the policy in `text`: a KubeSchedulerConfiguration, a Policy, or a ConfigMap that holds one of them.

    Raises:
        ConfigurationError: with every fault, each as "path: what is wrong (did you mean X?)".
    """
    return read(_parsed(text), library)


def read(document: object, library: Library | None = None) -> Policy:
    """Returns the policy in a document that is already parsed; see `load`."""
    faults = Faults()
    kind = _kind(document)
    if kind == _CONFIG_MAP:
        return load(_content(document), library)
    reader = _READERS.get(kind)
    if reader is None:
        what = f"expected {' or '.join(_READERS)}" + (f", got {kind}" if kind else "")
        faults.add("kind", what, kind, (*_READERS, _CONFIG_MAP))
    policy = reader(document, library or Library(), faults) if reader else None
    faults.raise_if_any()
    assert policy is not None
    return policy


def _parsed(text: bytes | str) -> object:
    try:
        return strict_yaml.load(text)
    except MalformedInput as error:
        raise ConfigurationError([f"the document: {error}"]) from None


def _kind(document: object) -> str:
    kind = document.get("kind") if isinstance(document, Mapping) else None
    return kind if isinstance(kind, str) else ""


def _content(config_map: object) -> str:
    """Returns the only text in the ConfigMap's data; if there are several, the only text that is a policy.

    Raises:
        ConfigurationError: there is no text, or not exactly one of several texts is a policy.
    """
    data = config_map.get("data") if isinstance(config_map, Mapping) else None
    texts = [text for text in data.values() if isinstance(text, str)] if isinstance(data, Mapping) else []
    policies = [text for text in texts if _kind(_parsed_or_none(text)) in _READERS] if len(texts) > 1 else texts
    if len(policies) != 1:
        count = f"{len(policies)} of {len(texts)} keys" if texts else "no keys"
        raise ConfigurationError([f"data: expected one key with a {' or '.join(_READERS)}, got {count}"])
    return policies[0]


def _parsed_or_none(text: str) -> object:
    try:
        return strict_yaml.load(text)
    except MalformedInput:
        return None
