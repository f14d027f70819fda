"""Rules of Reserve and Permit: what they may answer."""

from __future__ import annotations

import pytest

from extender.errors import BindingFailed
from extender.framework.permit import NO_PERMITS, Wait
from extender.plugins.users import OfflineHost
from extender.plugins.users.reserve import permit, reserve
from extender.runtime.clock import NO_DEADLINE
from tests.builders import make_pod
from tests.framework.cluster import pod_info
from tests.queue.queueing import node


class Messages(OfflineHost):
    """The errors of rules, as text."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[str] = []

    def failed(self, rule: str, error: BaseException) -> None:
        self.told.append(f"{rule}: {type(error).__name__}: {error}")


def asked(decorator: object, answer: object, failures: Messages) -> float:
    """What a rule that gives this answer says of a pod: how many seconds it may wait."""
    function = reserve if decorator is reserve else permit
    rule = function(lambda pod, node: answer).rule("mine", {}, failures)
    return rule.run(pod_info(make_pod("p").obj()).pod, node("n"), NO_PERMITS, NO_DEADLINE)


@pytest.mark.parametrize("decorator", [reserve, permit])
def test_a_pod_that_is_let_through_does_not_wait(decorator: object) -> None:
    assert [asked(decorator, answer, Messages()) for answer in (True, None)] == [0, 0]


@pytest.mark.parametrize("decorator", [reserve, permit])
@pytest.mark.parametrize(
    ("answer", "reason"), [(False, "rejected by mine"), ("", "rejected by mine"), ("no licence", "no licence")]
)
def test_a_pod_that_is_rejected_has_a_reason_and_the_rule_has_not_failed(
    decorator: object, answer: object, reason: str
) -> None:
    failures = Messages()
    with pytest.raises(BindingFailed) as rejected:
        asked(decorator, answer, failures)
    assert (str(rejected.value), failures.told) == (reason, [])


def test_a_rule_of_permit_may_have_the_pod_wait() -> None:
    assert asked(permit, Wait(7), Messages()) == 7


@pytest.mark.parametrize(
    ("decorator", "answer", "told"),
    [
        (reserve, Wait(7), "a rule of reserve must return True, None, False or a reason, not Wait(timeout_seconds=7)"),
        (reserve, 5, "a rule of reserve must return True, None, False or a reason, not 5"),
        (permit, 5, "a rule of permit must return True, None, Wait(seconds), False or a reason, not 5"),
    ],
)
def test_any_other_answer_is_a_failure_that_says_what_is_allowed(decorator: object, answer: object, told: str) -> None:
    failures = Messages()
    with pytest.raises(BindingFailed, match="rule mine failed"):
        asked(decorator, answer, failures)
    assert failures.told == [f"mine: TypeError: {told}"]
