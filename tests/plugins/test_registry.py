"""The in-tree plugins: a configuration may name each at the extension points where kube-scheduler has it."""

from __future__ import annotations

from extender.plugins.registry import IN_TREE, DefaultPreemptionArgs

POINTS = [
    "preEnqueue",
    "queueSort",
    "preFilter",
    "filter",
    "postFilter",
    "preScore",
    "score",
    "reserve",
    "permit",
    "preBind",
    "bind",
    "postBind",
    "placementGenerate",
    "placementScore",
    "podGroupPostFilter",
]
POINTS_OF = {
    "SchedulingGates": "preEnqueue",
    "PrioritySort": "queueSort",
    "NodeName": "preFilter filter",
    "NodeUnschedulable": "preFilter filter",
    "TaintToleration": "preFilter filter preScore score",
    "NodeAffinity": "preFilter filter preScore score",
    "NodePorts": "preFilter filter",
    "NodeResourcesFit": "preFilter filter preScore score placementScore",
    "VolumeRestrictions": "preFilter filter",
    "NodeVolumeLimits": "preFilter filter",
    "VolumeBinding": "preFilter filter preScore score reserve preBind",
    "VolumeZone": "preFilter filter",
    "PodTopologySpread": "preFilter filter preScore score",
    "InterPodAffinity": "preFilter filter preScore score",
    "DynamicResources": "preEnqueue preFilter filter postFilter score reserve preBind podGroupPostFilter",
    "DefaultPreemption": "preEnqueue postFilter",
    "NodeResourcesBalancedAllocation": "preScore score",
    "ImageLocality": "score",
    "DefaultBinder": "bind",
    "NodeDeclaredFeatures": "preFilter filter",
    "DeferredPodScheduling": "preFilter filter permit",
    "GangScheduling": "preEnqueue permit",
    "TopologyPlacementGenerator": "placementGenerate",
    "PodGroupPodsCount": "placementScore",
}


def test_each_plugin_extends_the_points_that_it_extends_in_kube_scheduler() -> None:
    points = {name: [point for point in POINTS if plugin.extends(point)] for name, plugin in IN_TREE.items()}
    assert points == {name: names.split() for name, names in POINTS_OF.items()}


def test_preemption_considers_a_tenth_of_the_nodes_and_at_least_a_hundred() -> None:
    args = DefaultPreemptionArgs()
    assert (args.min_candidate_nodes_percentage, args.min_candidate_nodes_absolute) == (10, 100)
