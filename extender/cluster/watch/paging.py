"""Lists all objects of a kind, page by page. Each list is a quorum read, so it shows every earlier write."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from extender.cluster.http.kube_client import KubeClient, error_of
from extender.cluster.watch.api_objects import Page, read_page
from extender.cluster.watch.list_watch_state import PAGE_SIZE, List
from extender.model.kinds import Kind

LIST_SILENCE_SECONDS = 30.0

# Finished pods use no resources; kube-scheduler excludes them in the same way.
_FIELD_SELECTORS = {"Pod": "status.phase!=Succeeded,status.phase!=Failed"}
_JSON = "application/json"
_EXPIRED = 410
T = TypeVar("T")


def query_of(kind: Kind, **fields: str) -> dict[str, str]:
    """Returns the query of a list or watch of the kind, with a selector that excludes finished pods."""
    selector = _FIELD_SELECTORS.get(kind.name)
    return {**fields, "fieldSelector": selector} if selector else fields


def list_query(kind: Kind, step: List) -> dict[str, str]:
    fields = {"limit": str(step.limit)} if step.limit else {}
    return query_of(kind, **fields, **({"continue": step.continue_token} if step.continue_token else {}))


def list_all(
    client: KubeClient,
    kind: Kind,
    decode: Callable[[bytes], Page[T]],
    page_size: int = PAGE_SIZE,
    accept: str = _JSON,
    namespace: str = "",
) -> tuple[str, list[T]]:
    """Lists all objects of the kind; returns the version of the list, and the objects.

    If a continue token has expired, this lists everything again in a single page, as the reflector does.

    Args:
        namespace: the namespace to list; "" for all.

    Raises:
        Refused, OutcomeUnknown: the API server does not answer with the list.
    """
    step, items = List("", page_size), list[T]()
    path = kind.path_in(namespace) if namespace else kind.path
    while True:
        with client.get(path, list_query(kind, step), LIST_SILENCE_SECONDS, accept) as response:
            body = response.read()
        if response.status == _EXPIRED and step.continue_token:
            step, items = List("", 0), []
            continue
        if response.status != 200:
            raise error_of(response.status, body)
        page = read_page(decode, body)
        items += page.items or ()
        if not page.metadata.continue_token:
            return page.metadata.resource_version, items
        step = List(page.metadata.continue_token, step.limit)
