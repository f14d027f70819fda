"""Sends a pod to nodes with one of the GPU models that it names, best first: `example.com/gpu-models: h100,a100`."""

from extender import Node, Pod, predicate, priority

LABEL, ANNOTATION = "example.com/gpu-model", "example.com/gpu-models"


def models(pod: Pod) -> list[str]:
    return [name.strip() for name in pod.annotations.get(ANNOTATION, "").split(",") if name.strip()]


@predicate(woken_by={"Node": "Add|UpdateNodeLabel"})
def has_model(pod: Pod, node: Node) -> str | None:
    """Refuses nodes without any of the models."""
    wanted = models(pod)
    return None if not wanted or node.labels.get(LABEL) in wanted else "node(s) had another GPU model"


@priority
def earlier_model(pod: Pod, node: Node) -> float:
    """Prefers the models that the pod names first."""
    wanted, model = models(pod), node.labels.get(LABEL)
    return 100 * (1 - wanted.index(model) / len(wanted)) if model in wanted else 0
