"""Uses some nodes only at certain hours: nodes with `example.com/hours: 20-6` take pods from 20:00 to 05:59 UTC."""

from extender import Handle, Node, Pod, predicate

HOURS = "example.com/hours"


@predicate
def at_its_hours(pod: Pod, node: Node, *, handle: Handle, label: str = HOURS) -> str | None:
    """Refuses nodes outside their hours. No event tells when an hour begins, so pods wait five minutes at most."""
    hours = node.labels.get(label)
    if hours is None:
        return None
    begin, end = map(int, hours.split("-"))
    now = handle.now.hour
    is_open = begin <= now < end if begin < end else now >= begin or now < end
    return None if is_open else "node(s) take pods at other hours"
