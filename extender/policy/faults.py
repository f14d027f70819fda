"""Everything that is wrong with a policy, collected: path, what is wrong, and the nearest right name."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from extender.errors import ConfigurationError
from extender.runtime.near_names import did_you_mean

M = TypeVar("M", bound=BaseModel)
_SHOWN = 60
Location = tuple[int | str, ...]


class Faults:
    """The faults found so far, each "path: what is wrong (did you mean X?)"."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def add(self, path: str, what: str, wrong: str = "", right: Iterable[str] = ()) -> None:
        """Notes a fault; `wrong` is a name of which one in `right` may have been meant."""
        self.found.append(f"{path}: {what}{did_you_mean(wrong, right)}")

    def require(self, path: str) -> None:
        """Notes that something is missing, unless what was there was wrong."""
        if not any(fault.startswith(f"{path}: ") for fault in self.found):
            self.add(path, "required")

    def read(self, model: type[M], value: object, path: str = "") -> M | None:
        """Returns `value` as the model. What is wrong with it is noted and left out, so that the rest is checked too.

        None where nothing can be made of the rest, because something is missing.
        """
        document = _without_nulls(value)
        wrong: list[Location] = []
        while True:
            try:
                return model.model_validate_json(json.dumps(document, default=str))
            except ValidationError as error:
                details = error.errors(include_url=False)
            for detail in details:
                # What was left out is missing now, and cannot be judged together with its neighbours.
                if not any(_holds(detail["loc"], location) for location in wrong):
                    self._note(detail, model, path)
            wrong += [detail["loc"] for detail in details]
            if not isinstance(document, dict):
                document = {}
            elif not _prune(document, [detail["loc"] for detail in details]):
                return None

    def raise_if_any(self) -> None:
        """Raises ConfigurationError with all of them, if there are any."""
        if self.found:
            raise ConfigurationError(self.found)

    def _note(self, detail: ErrorDetails, model: type[BaseModel], path: str) -> None:
        location = detail["loc"]
        place = joined(path, location) or "the document"
        match detail["type"]:
            case "extra_forbidden":
                self.add(place, "no such field", str(location[-1]), _fields(model, location[:-1]))
            case "missing":
                self.add(place, "required")
            case "literal_error":
                allowed = re.findall(r"'([^']*)'", detail["ctx"]["expected"])
                self.add(
                    place,
                    f"want {' or '.join(allowed)}, not {_shown(detail['input'])}",
                    str(detail["input"]),
                    allowed,
                )
            case "too_short" | "string_too_short":
                self.add(place, f"want at least {detail['ctx']['min_length']}")
            case "value_error":
                self.add(place, f"{detail['ctx']['error']}{_but(detail['input'])}")
            case _:
                self.add(place, f"{detail['msg'].replace('Input should be', 'want')}{_but(detail['input'])}")


def joined(path: str, location: Iterable[int | str]) -> str:
    """Returns `profiles[0]` and ("plugins", "score", 1) as one path."""
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
    return path


def _shown(given: object) -> str:
    text = repr(given)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _but(given: object) -> str:
    return "" if isinstance(given, list | tuple | dict | BaseModel) else f", not {_shown(given)}"


def _holds(place: Location, inner: Location) -> bool:
    return inner[: len(place)] == place


def _without_nulls(value: object) -> object:
    """Go reads null as if nothing were there."""
    if isinstance(value, Mapping):
        return {str(key): _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return deepcopy(value)


def _prune(document: dict[str, Any], locations: Iterable[Location]) -> bool:
    """Takes away what stands at each location, and returns True if there was anything to take away."""
    return sum(_take_away(document, location) for location in locations) > 0


def _take_away(document: dict[str, Any], location: Location) -> bool:
    """Deletes the key nearest to the location: a list goes as a whole, lest others in it change their places."""
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
            return False  # taken away already
    if isinstance(here, dict):
        trail.append((here, str(last)))
    for holder, key in reversed(trail):
        if key in holder:
            del holder[key]
            return True
    return False


def _fields(model: type[BaseModel] | None, location: Location) -> list[str]:
    """Returns the names that fields may have at a location."""
    for part in location:
        if model is None:
            return []
        if isinstance(part, str):
            model = next((_inner(f.annotation) for f in model.model_fields.values() if f.alias == part), None)
    return [f.alias or name for name, f in model.model_fields.items()] if model else []


def _inner(annotation: object) -> type[BaseModel] | None:
    """Returns the model in `tuple[Model, ...]`, `Model | None` and the like."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for each in get_args(annotation) if (found := _inner(each))), None)
