"""Collects every fault of a policy: its path, what is wrong, and the most similar known name."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from extender.errors import ConfigurationError
from extender.runtime.text import plainly, with_suggestion

M = TypeVar("M", bound=BaseModel)
_SHOWN = 60
Location = tuple[int | str, ...]


class Faults:
    """The faults collected so far, each as "path: what is wrong (did you mean X?)"."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.notes: list[str] = []  # remarks on what is accepted, but has no effect

    def add(self, path: str, what: str, wrong: str = "", right: Iterable[str] = ()) -> None:
        """Adds a fault. The message suggests the name in `right` that resembles `wrong`, if there is such a name."""
        self.messages.append(with_suggestion(f"{path}: {what}", wrong, right))

    def require(self, path: str) -> None:
        """Adds the fault that the value at `path` is missing, unless that path already has a fault."""
        if not any(fault.startswith(f"{path}: ") for fault in self.messages):
            self.add(path, "required")

    def read(self, model: type[M], value: object, path: str = "") -> M | None:
        """Returns `value` as an instance of `model`, without the parts that have a fault; adds these faults.

        A faulty part is left out so that the other parts are checked too. Returns None if a required part is faulty or
        missing.
        """
        document = _decoded(value, model)
        wrong: list[Location] = []
        while True:
            try:
                return model.model_validate_json(json.dumps(document, default=str))
            except ValidationError as error:
                details = error.errors(include_url=False)
            for detail in details:
                # Skips follow-up errors: a part that was removed as wrong is now missing, or contradicts other fields.
                if not any(_holds(detail["loc"], location) for location in wrong):
                    self._note(detail, model, path)
            wrong += [detail["loc"] for detail in details]
            if not isinstance(document, dict):
                document = {}
                continue
            removed = [_remove(document, detail["loc"]) for detail in details]
            if not any(removed):
                return None

    def raise_if_any(self) -> None:
        """Raises ConfigurationError with all faults, if there are any."""
        if self.messages:
            raise ConfigurationError(self.messages)

    def _note(self, detail: ErrorDetails, model: type[BaseModel], path: str) -> None:
        location = detail["loc"]
        place = joined(path, location) or "the document"
        match detail["type"]:
            case "extra_forbidden":
                self.add(place, "unknown field", str(location[-1]), _fields(model, location[:-1]))
            case "missing":
                self.add(place, "required")
            case "literal_error":
                allowed = re.findall(r"'([^']*)'", detail["ctx"]["expected"])
                self.add(
                    place,
                    f"expected {' or '.join(allowed)}, got {_shown(detail['input'])}",
                    str(detail["input"]),
                    allowed,
                )
            case "too_short" | "string_too_short":
                self.add(place, f"expected at least {detail['ctx']['min_length']}")
            case "value_error":
                self.add(place, f"{detail['ctx']['error']}{_got(detail['input'])}")
            case _:
                self.add(place, f"{plainly(detail['msg'])}{_got(detail['input'])}")


def joined(path: str, location: Iterable[int | str]) -> str:
    """Appends a location to a path: `profiles[0]` and ("plugins", "score", 1) give `profiles[0].plugins.score[1]`."""
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
    return path


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _got(value: object) -> str:
    return "" if isinstance(value, list | tuple | dict | BaseModel) else f", got {_shown(value)}"


def _holds(place: Location, inner: Location) -> bool:
    return inner[: len(place)] == place


def _decoded(value: object, model: type[BaseModel] | None) -> object:
    """Returns a copy of the value in which nulls are what Go decodes them to.

    A field that is null is absent, unless the model lists it as `never_null` or does not know it. In a list, null is
    an empty value.
    """
    if isinstance(value, Mapping):
        nullable = _nullable(model)
        fields = {str(key): item for key, item in value.items() if item is not None or not nullable(str(key))}
        return {key: _decoded(item, _model_at(model, key)) for key, item in fields.items()}
    if isinstance(value, list):
        return [_decoded(({} if model else "") if item is None else item, model) for item in value]
    return deepcopy(value)


def _nullable(model: type[BaseModel] | None) -> Callable[[str], bool]:
    if model is None:
        return lambda _: True
    names = {field.alias for field in model.model_fields.values()} - getattr(model, "never_null", frozenset())
    return names.__contains__


def _remove(document: dict[str, Any], location: Location) -> bool:
    """Deletes the field at the location; returns False if nothing was deleted.

    An element of a list is never deleted alone, because the other elements must keep their indices. Instead, the
    innermost field around it is deleted. The same is done if the field at the location is missing.
    """
    if not location:
        return False
    *above, last = location
    here: Any = document
    trail: list[tuple[dict[str, Any], str]] = []
    for part in above:
        if isinstance(here, dict):
            trail.append((here, str(part)))
        try:
            here = here[part]
        except (KeyError, IndexError, TypeError):
            return False  # the part was already removed for another error
    if isinstance(here, dict):
        trail.append((here, str(last)))
    for holder, key in reversed(trail):
        if key in holder:
            del holder[key]
            return True
    return False


def _fields(model: type[BaseModel] | None, location: Location) -> list[str]:
    """Returns the names of the fields that the model has at a location."""
    for part in location:
        if model is None:
            return []
        if isinstance(part, str):
            model = _model_at(model, part)
    return [f.alias or name for name, f in model.model_fields.items()] if model else []


def _model_at(model: type[BaseModel] | None, field: str) -> type[BaseModel] | None:
    """Returns the model of the values in a field; None if they are not objects."""
    fields = model.model_fields.values() if model else ()
    return next((model_in(each.annotation) for each in fields if each.alias == field), None)


def model_in(annotation: object) -> type[BaseModel] | None:
    """Returns the model in `tuple[Model, ...]`, `Model | None` and the like."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((model for argument in get_args(annotation) if (model := model_in(argument))), None)
