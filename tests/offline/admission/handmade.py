"""Odd objects that were written by hand, and what a real API server makes of them.

`handmade.yaml` has one document a case: `title`, and either `object`, or what differs from a plain pod in `metadata`,
`spec`, `container` and `status`.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.builders import Object
from tests.offline.admission import world

FILE = Path(__file__).parent / "handmade.yaml"


def cases() -> Iterator[tuple[str, Object]]:
    """Yields the title and the object of each case."""
    for case in yaml.safe_load_all(FILE.read_text()):
        obj = case["object"] if "object" in case else _pod(case)
        obj["metadata"].setdefault("namespace", world.PLAIN)
        yield case["title"], obj


def _pod(case: Mapping[str, Any]) -> Object:
    container = {"name": "c", "image": "i", **case.get("container", {})}
    pod: Object = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", **case.get("metadata", {})},
        "spec": {"containers": [container], **case.get("spec", {})},
        **({"status": case["status"]} if "status" in case else {}),
    }
    return copy.deepcopy(pod)
