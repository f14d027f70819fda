"""YAML from users: the C loader, no tags that build objects, no key twice."""

from __future__ import annotations

from typing import Any

import yaml

from extender.errors import MalformedInput


def load(text: bytes | str) -> object:
    """The one document in `text`.

    Raises:
        MalformedInput: with the line, in one line.
    """
    try:
        return yaml.load(text, _Loader)  # noqa: S506 - _Loader is a safe one
    except (yaml.YAMLError, RecursionError) as error:
        raise MalformedInput(_message(error)) from None


class _Loader(yaml.CSafeLoader):
    """Refuses a key that is there twice: YAML takes the last without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in seen:
                raise yaml.MarkedYAMLError(problem=f"{key.value} is there twice", problem_mark=key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def _message(error: Exception) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark:
        return f"line {error.problem_mark.line + 1}: {error.problem}"
    return " ".join(str(error).split())
