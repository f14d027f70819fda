"""NodeDeclaredFeatures: pods that need what not every kubelet has."""

from __future__ import annotations

from tests.conformance.draft import Dice, Draft

FEATURES = ("RestartAllContainersOnContainerExits", "UserNamespacesHostNetworkSupport", "VolumeBindMountOptions")


def add(dice: Dice, draft: Draft) -> None:
    for node in draft.nodes:
        node.declared_features(*sorted(dice.some((*FEATURES, "SomethingElse"), 0, 4)))
    if dice.chance(50):
        rule = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [1]}}
        draft.target.first_container(restartPolicy="Never", restartPolicyRules=[rule])
    if dice.chance(40):
        draft.target.spec(hostNetwork=dice.chance(70), hostUsers=dice.one(False, True))
