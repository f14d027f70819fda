"""NodePorts."""

from __future__ import annotations

from tests.builders import PodBuilder
from tests.conformance.draft import Dice, Draft


def add(dice: Dice, draft: Draft) -> None:
    for pod in draft.everyone:
        if dice.chance(60):
            _listen(dice, pod)
    if dice.chance(30):
        _listen(dice, draft.target)


def _listen(dice: Dice, pod: PodBuilder) -> None:
    port, protocol = dice.one(80, 80, 443, 0), dice.one("TCP", "TCP", "UDP", "SCTP", "")
    pod.host_port(port, protocol, dice.one(None, None, "127.0.0.1", "0.0.0.0", "10.0.0.1", "::"))
    if dice.chance(15):
        pod.init_container(sidecar=dice.chance(50), host_port=80)
