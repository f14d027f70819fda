"""Which profile decides for which pod."""

from __future__ import annotations

from collections.abc import Sequence

from extender.framework.algorithm import Profile
from extender.model.pod import Pod


class Profiles:
    """Profiles by schedulerName; a pod of another gets the first, for an extender serves all of a scheduler's."""

    def __init__(self, profiles: Sequence[Profile]) -> None:
        self._by_name = {profile.name: profile for profile in profiles}
        self._first = profiles[0]

    def of(self, pod: Pod) -> Profile:
        """The profile of the pod's schedulerName."""
        return self._by_name.get(pod.spec.scheduler_name, self._first)
