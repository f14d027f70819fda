from extender import Node, Pod, predicate


@predicate
def keep_team(pod: Pod, node: Node, *, label: str = "example.com/team") -> str | None:
    """Keeps pods with the label on nodes with the same value."""
    value = pod.labels.get(label)
    return None if value is None or node.labels.get(label) == value else "node(s) belonged to another team"
