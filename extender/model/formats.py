"""Checks the formats of names, labels and resource names, as the API server does.

Every function returns what is wrong, as text for people, or None if the text is valid.

Sources: upstream k8s.io/apimachinery/pkg/api/validate/content, pkg/apis/core/validation ValidateContainerResourceName.
"""

from __future__ import annotations

import re

from extender.errors import MalformedQuantity
from extender.model.quantity import NANO, nano
from extender.model.requests import is_extended, is_pod_level
from extender.runtime.text import with_suggestion

_DNS = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_LABEL = re.compile(_DNS)
_SUBDOMAIN = re.compile(rf"{_DNS}(\.{_DNS})*")
_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_LONGEST_LABEL, _LONGEST_SUBDOMAIN = 63, 253
_HIGHEST_PORT = 65535
_STANDARD_RESOURCES = ("cpu", "memory", "ephemeral-storage")
HUGE_PAGES = "hugepages-"


def dns_label(text: str) -> str | None:
    """Checks the name of a container, a volume or a namespace."""
    if _LABEL.fullmatch(text) and len(text) <= _LONGEST_LABEL:
        return None
    return f"{text!r} is not a name: expected at most {_LONGEST_LABEL} lower-case letters, digits and -"


def dns_subdomain(text: str) -> str | None:
    """Checks the name of an object of most kinds."""
    if _SUBDOMAIN.fullmatch(text) and len(text) <= _LONGEST_SUBDOMAIN:
        return None
    return f"{text!r} is not a name: expected at most {_LONGEST_SUBDOMAIN} lower-case letters, digits, - and ."


def driver_name(text: str) -> str | None:
    """Checks the name of a CSI driver or a device driver, which may have capitals."""
    if len(text) <= _LONGEST_LABEL and dns_subdomain(text.lower()) is None:
        return None
    return f"{text!r} is not a driver: expected at most {_LONGEST_LABEL} letters, digits, - and ."


def qualified_name(text: str) -> str | None:
    """Checks the key of a label, a taint or a resource: a name, with or without a domain before it."""
    domain, has_domain, name = text.rpartition("/")
    if _NAME.fullmatch(name) and len(name) <= _LONGEST_LABEL and (not has_domain or dns_subdomain(domain) is None):
        return None
    return f"{text!r} is not a key: expected NAME or DOMAIN/NAME, of letters, digits, -, _ and ."


def label_value(text: str) -> str | None:
    if not text or (_NAME.fullmatch(text) and len(text) <= _LONGEST_LABEL):
        return None
    return f"{text!r} is not a label's value: expected at most {_LONGEST_LABEL} letters, digits, -, _ and ."


def port_number(number: int | None) -> str | None:
    is_port = number is not None and 1 <= number <= _HIGHEST_PORT
    return None if is_port else f"expected a number from 1 to {_HIGHEST_PORT}, got {number}"


def container_resource(name: str) -> str | None:
    """Checks the name of a resource that a container may request."""
    if fault := qualified_name(name):
        return fault
    if "/" in name:
        is_valid = "kubernetes.io/" in name or (is_extended(name) and qualified_name(f"requests.{name}") is None)
        return None if is_valid else f"{name!r} is not a resource: its domain is too long or starts with requests."
    if name in _STANDARD_RESOURCES or name.startswith(HUGE_PAGES):
        return None
    expected = f"{', '.join(_STANDARD_RESOURCES)}, {HUGE_PAGES}SIZE or a name with a domain, like example.com/gpu"
    return with_suggestion(f"unknown resource: expected {expected}", name, _STANDARD_RESOURCES)


def pod_resource(name: str) -> str | None:
    """Checks the name of a resource that a pod may request as a whole."""
    if is_pod_level(name):
        return qualified_name(name)
    return f"a pod as a whole may only request cpu, memory and {HUGE_PAGES}SIZE"


def page_bytes(resource: str) -> int:
    """Returns the size of the resource's pages; 0 if its name has no valid size."""
    try:
        size = nano(resource.removeprefix(HUGE_PAGES))
    except MalformedQuantity:
        return 0
    return size // NANO if size > 0 and size % NANO == 0 else 0
