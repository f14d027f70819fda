"""Recorded requests made bad: as trees, then as bytes. Every step is drawn from the given Random."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from random import Random
from typing import Any

from tests.faults.nasty import FIELDS, LONG, MANY, PLACEHOLDER, QUANTITIES, TOKENS, VALUES

Path = tuple[Any, ...]


def mutated(request: dict[str, Any], random: Random) -> bytes:
    """One to three mutations of a recorded request."""
    tree: Any = pickle.loads(pickle.dumps(request))
    for _ in range(random.randint(1, 3)):
        tree = random.choice(_TREE_MUTATIONS)(tree, random)
    body = json.dumps(tree).encode()
    if PLACEHOLDER.encode() in body:
        body = body.replace(json.dumps(PLACEHOLDER).encode(), random.choice(TOKENS))
    return random.choice(_BYTE_MUTATIONS)(body, random) if random.random() < 0.3 else body


def many_names(request: dict[str, Any], random: Random) -> bytes:
    """A request about a hundred thousand nodes, most of which are unknown."""
    names = [f"n{i}" for i in range(MANY)]
    if "NodeNameToMetaVictims" in request:
        victims = {name: {"Pods": [{"UID": name}], "NumPDBViolations": 0} for name in names}
        return json.dumps({**request, "NodeNameToMetaVictims": victims}).encode()
    return json.dumps({**request, "NodeNames": [*(request.get("NodeNames") or ()), *names], "Nodes": None}).encode()


def large_pod(request: dict[str, Any], random: Random) -> bytes:
    """A request for a new pod of a megabyte."""
    tree = copy.deepcopy(request)
    metadata = tree.setdefault("Pod", {}).setdefault("metadata", {})
    metadata |= {"uid": str(random.getrandbits(64)), "annotations": {"large": "x" * 2**20}}
    return json.dumps(tree).encode()


# ---- on the tree


def _paths(tree: Any) -> list[Path]:
    """The paths of the whole and of each of its parts."""
    paths: list[Path] = [()]
    parts = [tree]
    for at, part in zip(paths, parts, strict=True):  # both grow as they are gone through
        items = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
        for key, value in items:
            paths.append((*at, key))
            parts.append(value)
    return paths


def _get(tree: Any, path: Path) -> Any:
    for key in path:
        tree = tree[key]
    return tree


def _put(tree: Any, path: Path, value: Any) -> Any:
    if not path:
        return value
    _get(tree, path[:-1])[path[-1]] = value
    return tree


def _somewhere(tree: Any, random: Random) -> Path:
    return random.choice(_paths(tree))


def _replace(tree: Any, random: Random) -> Any:
    return _put(tree, _somewhere(tree, random), copy.deepcopy(random.choice(VALUES)))


def _token(tree: Any, random: Random) -> Any:
    return _put(tree, _somewhere(tree, random), PLACEHOLDER)


def _quantity(tree: Any, random: Random) -> Any:
    """An absurd quantity where one belongs."""
    wanted = {"cpu", "memory", "storage", "pods", "ephemeral-storage"}
    places = [path for path in _paths(tree) if path and path[-1] in wanted]
    path = random.choice(places) if places else _somewhere(tree, random)
    return _put(tree, path, random.choice(QUANTITIES))


def _remove(tree: Any, random: Random) -> Any:
    path = _somewhere(tree, random)
    if path:
        del _get(tree, path[:-1])[path[-1]]
    return tree


def _nulls(tree: Any, random: Random) -> Any:
    """Null in place of every leaf of a part."""
    path = _somewhere(tree, random)
    part = _get(tree, path)
    if not isinstance(part, dict | list):
        return _put(tree, path, None)
    for leaf in [leaf for leaf in _paths(part) if leaf and not isinstance(_get(part, leaf), dict | list)]:
        _put(part, leaf, None)
    return tree


def _empty(tree: Any, random: Random) -> Any:
    """Every list, or every map, of a part loses what it holds."""
    form = random.choice((list, dict))
    path = _somewhere(tree, random)
    part = _get(tree, path)
    for inner in [inner for inner in _paths(part) if inner and isinstance(_get(part, inner), form)]:
        try:
            _put(part, inner, form())
        except (KeyError, IndexError):  # within one that is empty by now
            continue
    return tree


def _repeat(tree: Any, random: Random) -> Any:
    """Elements of a list many times over."""
    lists = [path for path in _paths(tree) if isinstance(_get(tree, path), list)]
    if lists:
        part = _get(tree, random.choice(lists))
        part.extend(copy.deepcopy(part[:3]) * random.choice((1, 2, 50)))
    return tree


def _swap(tree: Any, random: Random) -> Any:
    """A part in the place of another."""
    return _put(tree, _somewhere(tree, random), copy.deepcopy(_get(tree, _somewhere(tree, random))))


def _rename(tree: Any, random: Random) -> Any:
    """A key in another spelling."""
    path = _somewhere(tree, random)
    if path and isinstance(path[-1], str):
        part = _get(tree, path[:-1])
        key = random.choice((path[-1].lower(), path[-1].upper(), path[-1] + " ", "", "metadata", "items"))
        part[key] = part.pop(path[-1])
    return tree


def _add_field(tree: Any, random: Random) -> Any:
    """A field of the API with a value of the wrong type."""
    maps = [path for path in _paths(tree) if isinstance(_get(tree, path), dict)]
    if maps:
        _get(tree, random.choice(maps))[random.choice(FIELDS)] = copy.deepcopy(random.choice(VALUES))
    return tree


_TREE_MUTATIONS: tuple[Callable[[Any, Random], Any], ...] = (
    _replace,
    _token,
    _quantity,
    _remove,
    _nulls,
    _empty,
    _repeat,
    _swap,
    _rename,
    _add_field,
)


# ---- on the bytes


def _cut(body: bytes, random: Random) -> bytes:
    return body[: random.randrange(len(body) + 1)]


def _flip(body: bytes, random: Random) -> bytes:
    at = random.randrange(max(1, len(body)))
    return body[:at] + bytes([random.randrange(256)]) + body[at + 1 :]


def _insert(body: bytes, random: Random) -> bytes:
    at = random.randrange(len(body) + 1)
    return body[:at] + random.choice(TOKENS) + body[at:]


def _double_key(body: bytes, random: Random) -> bytes:
    """The body's keys twice, the second time with other values."""
    return body[:-1] + b"," + random.choice((body[1:], b'"Pod":null}', b'"pod":{},"PODNAME":1}'))


def _surround(body: bytes, random: Random) -> bytes:
    return random.choice(
        (
            b"\xef\xbb\xbf" + body,
            body + body,
            b" " * LONG + body,
            body + b"\x00",
            body.decode("latin-1").encode("utf-16"),
        )
    )


_BYTE_MUTATIONS: tuple[Callable[[bytes, Random], bytes], ...] = (_cut, _flip, _insert, _double_key, _surround)
