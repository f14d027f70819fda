"""Reads policies from YAML or JSON, or from the path, mapping or object that a user of the library gives.

A policy is either a KubeSchedulerConfiguration or a classic Policy.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from extender.errors import ConfigurationError, MalformedInput
from extender.framework.profile import Profiles
from extender.policy.classic import read_policy
from extender.policy.configuration import read_configuration, read_scheduler_configuration
from extender.policy.faults import Faults
from extender.policy.library import Library, OnlyInTree
from extender.policy.policy import Policy
from extender.runtime import strict_yaml
from extender.table.features import DEFAULT_FEATURES, FeatureGates

_Reader = Callable[[object, Library, Faults], Policy | None]
_CONFIGURATION = "KubeSchedulerConfiguration"
_READERS: Mapping[str, _Reader] = {_CONFIGURATION: read_configuration, "Policy": read_policy}
_CONFIG_MAP = "ConfigMap"
_MORE_DOCUMENTS = "the file has more documents; only the first one is read, as kube-scheduler does"


def load(text: bytes | str, library: Library | None = None) -> Policy:
    """Returns the policy in `text`: a KubeSchedulerConfiguration, a Policy, or a ConfigMap that holds one of them.

    Only the first document of a YAML file is read, as kube-scheduler does; `Policy.notes` says if there are more.

    Raises:
        ConfigurationError: with every fault, each as "path: what is wrong (did you mean X?)".
    """
    return _load(text, library or Library(), _READERS)


def load_scheduler_configuration(text: bytes | str, features: FeatureGates = DEFAULT_FEATURES) -> Policy:
    """Returns the configuration in `text`, a file that kube-scheduler gets as --config, or a ConfigMap that holds it.

    `features` are the version and the gates of kube-scheduler.

    Raises:
        ConfigurationError: kube-scheduler would not start with it; the faults say why.
    """
    return _load(text, OnlyInTree(), {_CONFIGURATION: partial(read_scheduler_configuration, features=features)})


def read(document: object, library: Library | None = None) -> Policy:
    """Returns the policy in a document that is already parsed; see `load`."""
    return _read(document, library or Library(), _READERS)


def _load(text: bytes | str, library: Library, readers: Mapping[str, _Reader]) -> Policy:
    document, has_more = _parsed(text)
    policy = _read(document, library, readers)
    return replace(policy, notes=(_MORE_DOCUMENTS, *policy.notes)) if has_more else policy


def _read(document: object, library: Library, readers: Mapping[str, _Reader]) -> Policy:
    faults = Faults()
    kind = _kind(document)
    if kind == _CONFIG_MAP:
        return _load(_content(document, readers), library, readers)
    reader = readers.get(kind)
    if reader is None:
        what = f"expected {' or '.join(readers)}" + (f", got {kind}" if kind else "")
        faults.add("kind", what, kind, (*readers, _CONFIG_MAP))
    policy = reader(document, library, faults) if reader else None
    faults.raise_if_any()
    assert policy is not None
    return policy


def _parsed(text: bytes | str) -> tuple[object, bool]:
    """Returns (document, has more): the first document of the text, and True if others follow.

    Like kube-scheduler, this takes a text that begins with a brace for JSON.
    """
    data = text.encode() if isinstance(text, str) else text
    try:
        if data.lstrip()[:1] == b"{":
            return json.loads(data, object_pairs_hook=_unique, parse_constant=_not_json), False
        return strict_yaml.load_first(data)
    except MalformedInput as error:
        raise ConfigurationError([f"the document: {error}"]) from None
    except (ValueError, RecursionError) as error:
        what = f"a file that begins with {{ must be JSON: {error}"
        raise ConfigurationError([f"the document: {what}"]) from None


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"duplicate key {next(name for name in names if names.count(name) > 1)}")
    return fields


def _not_json(constant: str) -> object:
    raise ValueError(f"{constant} is not a number that JSON has")


def _kind(document: object) -> str:
    kind = document.get("kind") if isinstance(document, Mapping) else None
    return kind if isinstance(kind, str) else ""


def _content(config_map: object, readers: Mapping[str, _Reader]) -> str:
    """Returns the only text in the ConfigMap's data; if there are several, the only text that is a policy.

    Raises:
        ConfigurationError: there is no text, or not exactly one of several texts is a policy.
    """
    data = config_map.get("data") if isinstance(config_map, Mapping) else None
    texts = [text for text in data.values() if isinstance(text, str)] if isinstance(data, Mapping) else []
    policies = [text for text in texts if _kind_in(text) in readers] if len(texts) > 1 else texts
    if len(policies) != 1:
        count = f"{len(policies)} of {len(texts)} keys" if texts else "no keys"
        raise ConfigurationError([f"data: expected one key with a {' or '.join(readers)}, got {count}"])
    return policies[0]


def _kind_in(text: str) -> str:
    try:
        return _kind(_parsed(text)[0])
    except ConfigurationError:
        return ""


AnyPolicy = Profiles | Policy | Mapping[str, Any] | str | Path
"""A KubeSchedulerConfiguration or classic Policy: the path of its file, its content as a mapping, or as an object."""


def profiles_of(policy: AnyPolicy | None) -> Profiles | None:
    """Returns the rules of a policy; None for kube-scheduler's defaults.

    Python modules beside a policy's file are imported if the policy names rules in them.

    Raises:
        ConfigurationError: the policy has faults. If the policy is a file, each fault begins with its path.
        OSError: the file cannot be read.
    """
    match policy:
        case None | Profiles():
            return policy
        case Policy():
            return policy.scheduler_profiles()
        case Mapping():
            return read(policy).scheduler_profiles()
        case _:
            return _of_file(Path(policy))


def _of_file(path: Path) -> Profiles:
    try:
        return load(path.read_bytes(), Library(folder=str(path.parent.absolute()))).scheduler_profiles()
    except ConfigurationError as error:
        raise ConfigurationError([f"{path}: {fault}" for fault in error.faults]) from None
