"""The decorators read the signature of a function."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Callable
from functools import partial, wraps
from typing import TYPE_CHECKING, Annotated, Any

import pytest
from pydantic import Field, ValidationError

from extender.plugins.users.binding import permit, reserve
from extender.plugins.users.predicate import predicate
from extender.plugins.users.priority import priority

if TYPE_CHECKING:
    from nowhere import Unknown  # type: ignore[import-not-found]  # what only type checkers may see is not looked up


def one_argument(pod: Any) -> None: ...
def four_arguments(pod: Any, table: Any, rows: Any, more: Any) -> None: ...
def any_arguments(*args: Any) -> None: ...
def any_keywords(pod: Any, node: Any, **more: Any) -> None: ...


@pytest.mark.parametrize("function", [one_argument, four_arguments, any_arguments, any_keywords])
@pytest.mark.parametrize(
    ("decorator", "form"),
    [
        pytest.param(predicate, "table, rows", id="predicate"),
        pytest.param(priority, "table, rows", id="priority"),
        pytest.param(reserve, "node, handle", id="reserve"),
        pytest.param(permit, "node, handle", id="permit"),
        pytest.param(permit(lambda pod, node: None).unreserve, "node, handle", id="unreserve"),
    ],
)
def test_a_function_with_another_signature_is_refused_by_name(
    decorator: Any, form: str, function: Callable[..., Any]
) -> None:
    with pytest.raises(TypeError, match=rf"^{function.__name__} must take \(pod, node\) or \(pod, {form}\)"):
        decorator(function)


async def asynchronous(pod: Any, node: Any) -> bool:
    return True


def generator(pod: Any, node: Any) -> Any:
    yield True


class Asynchronous:
    async def __call__(self, pod: Any, node: Any) -> bool:
        return True


@pytest.mark.parametrize("function", [asynchronous, generator, partial(asynchronous), Asynchronous()])
def test_an_async_function_or_generator_is_refused(function: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match="must return its answer: a rule cannot be an async function or a generator"):
        predicate(function)


def test_a_synchronous_wrapper_of_an_async_function_is_a_rule() -> None:
    @wraps(asynchronous)
    def waits(pod: Any, node: Any) -> bool:
        return asyncio.run(asynchronous(pod, node))

    assert predicate(waits)(None, None)


def test_unreserve_may_not_take_arguments_that_the_rule_lacks() -> None:
    @reserve
    def take(pod: Any, node: Any, *, licence: str) -> None: ...

    def give_back(pod: Any, node: Any, *, licences: str) -> None: ...

    with pytest.raises(TypeError, match="give_back takes licences, which take does not"):
        take.unreserve(give_back)


def test_annotations_of_pod_and_node_need_not_exist() -> None:
    def rule(pod: Unknown, node: Unknown, *, watts: int = 5) -> bool:
        return True

    assert predicate(rule).arguments().model_dump() == {"watts": 5}


Share = Annotated[float, Field(ge=0, le=1)]


class Licences:
    """A client of a licence server."""

    def __call__(self, pod: Any, node: Any, *, share: Share = 0.5) -> bool:
        """Asks."""
        return True

    def left(self, pod: Any, node: Any, *, share: Share = 0.5) -> bool:
        """Asks."""
        return True


def with_client(client: object, pod: Any, node: Any, *, share: Share) -> bool:
    """Asks the client."""
    return client is not None


@wraps(with_client)
def wrapped(*args: Any, **kwargs: Any) -> Any:
    return with_client(None, *args, **kwargs)


@pytest.mark.parametrize("decorator", [predicate, priority, reserve, permit])
@pytest.mark.parametrize(
    ("function", "name", "doc"),
    [
        pytest.param(partial(with_client, None, share=0.5), "with_client", "Asks the client.", id="a partial"),
        pytest.param(
            partial(partial(with_client, None), share=0.5), "with_client", "Asks the client.", id="of another"
        ),
        pytest.param(partial(wrapped, None, share=0.5), "with_client", "Asks the client.", id="of a wrapper"),
        pytest.param(Licences(), "Licences", "A client of a licence server.", id="an object that can be called"),
        pytest.param(Licences().left, "left", "Asks.", id="a bound method"),
        pytest.param(partial(Licences().left), "left", "Asks.", id="a partial of a bound method"),
        pytest.param(lambda pod, node, *, share=0.5: True, "<lambda>", None, id="a lambda"),
    ],
)
def test_any_callable_can_be_a_rule(decorator: Any, function: Callable[..., Any], name: str, doc: str | None) -> None:
    made = decorator(function)
    assert (made.__name__, made.__module__, made.__doc__, made.columns) == (name, __name__, doc, False)
    assert repr(made).endswith(f"Function {__name__}:{name}>")
    assert made.arguments.model_validate_json('{"share": 0.25}').model_dump() == {"share": 0.25}
    assert made.arguments().model_dump() == {"share": 0.5}
    if name != "<lambda>":
        with pytest.raises(ValidationError):
            made.arguments.model_validate_json('{"share": 2}')


@pytest.mark.filterwarnings("error")
def test_an_argument_that_begins_like_a_method_of_pydantic_causes_no_warning() -> None:
    made = predicate(lambda pod, node, *, model_dump_file="": True)
    assert made.arguments().model_dump() == {"model_dump_file": ""}


def test_a_builtin_function_can_be_a_rule() -> None:
    made = predicate(operator.is_not)
    assert made(None, None) is False
    assert list(made.arguments.model_fields) == []


@predicate
def rule(
    pod: Any, node: Any, *, name: str, share: Share = 0.5, among: tuple[str, ...] = (), anything: Any = None
) -> bool:
    return True


@pytest.mark.parametrize(
    ("given", "location"),
    [
        pytest.param('{"name": "x", "share": 0.1, "among": ["a"]}', None, id="right"),
        pytest.param("{}", "name", id="missing"),
        pytest.param('{"name": 3}', "name", id="another type"),
        pytest.param('{"name": "x", "share": 2}', "share", id="out of range"),
        pytest.param('{"name": "x", "shar": 1}', "shar", id="unknown"),
    ],
)
def test_arguments_are_validated_by_their_annotations(given: str, location: str | None) -> None:
    if location is None:
        assert dict(rule.arguments.model_validate_json(given))["among"] == ("a",)
        return
    with pytest.raises(ValidationError) as caught:
        rule.arguments.model_validate_json(given)
    assert [error["loc"] for error in caught.value.errors()] == [(location,)]
