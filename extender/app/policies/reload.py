"""The policy read again while a process runs: as a whole, and only where all of it is right."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext

from extender.app.policies.sources import PolicyFiles, log_failure, policy_of
from extender.config.settings import Settings
from extender.errors import ClusterError, ConfigurationError
from extender.framework.profile import Profile
from extender.plugins.users import CountedFailures
from extender.plugins.users.reserve import CustomReserve
from extender.policy.library import imported_anew
from extender.policy.policy import Policy
from extender.runtime.ports import Telemetry

_log = logging.getLogger(__name__)
Adopt = Callable[[Policy, str], None]
"""Puts a policy, which also comes as text, in force between two decisions.

Raises ConfigurationError, having changed nothing, where a restart is needed.
"""


class PolicyReload:
    """Looks whether the policy, or a module beside it, has another content than was last read.

    Args:
        tell: is told the faults of a policy that was not adopted; none: it was.
    """

    def __init__(
        self, settings: Settings, telemetry: Telemetry, tell: Callable[[str], object] = lambda _: None
    ) -> None:
        self._settings, self._telemetry, self._tell = settings, telemetry, tell
        self._files = PolicyFiles(settings.policy, settings.kubeconfig)
        self._requested = False
        self._seen: Mapping[str, bytes] = {}
        self._read: Mapping[str, bytes] = {}
        self._adopted: Mapping[str, bytes] = {}

    def read(self, adopt: Adopt = lambda _policy, _text: None) -> Policy:
        """Returns the policy as it is now, which `adopt` has put in force.

        Its modules are imported anew if one of them has changed: what they keep in their variables is to last else.

        Raises:
            ConfigurationError: everything is as before.
        """
        settings, path = self._settings, str(self._settings.policy)
        try:
            self._read = self._seen = contents = self._files.contents()
        except (ClusterError, ConfigurationError) as error:
            raise ConfigurationError([f"policy {path}: {error}"]) from None
        failures = CountedFailures(self._telemetry, log_failure)  # logs the first failure of each rule that is new
        changed = {**contents, path: b""} != {**self._adopted, path: b""}
        with imported_anew(self._files.folder) if changed else nullcontext():
            policy = policy_of(settings.policy, settings.provider, failures, settings.kubeconfig)
            adopt(policy, contents.get(path, b"").decode(errors="replace"))
        self._adopted = contents
        return policy

    def request(self) -> None:
        """Has the next look read the policy again, changed or not; a signal handler may call it."""
        self._requested = True

    def look(self, adopt: Adopt) -> None:
        """Reads the policy again if it was asked for, or the files have changed; what is wrong with them is logged."""
        requested, self._requested = self._requested, False
        if self._settings.policy is not None and (requested or self._has_changed()):
            self._reload(adopt)

    def _has_changed(self) -> bool:
        """Returns whether the files are not as last read, and as at the last look: nobody is about to write them."""
        try:
            before, self._seen = self._seen, self._files.contents()
        except ClusterError as error:  # which says nothing of the policy
            _log.debug("policy %s: %s", self._settings.policy, error)
            return False
        return before == self._seen != self._read

    def _reload(self, adopt: Adopt) -> None:
        path = self._settings.policy
        try:
            self.read(adopt)
        except ConfigurationError as error:
            faults = "; ".join(fault.removeprefix(f"policy {path}: ") for fault in error.faults)
            _log.error("policy %s is not adopted, and the one before stays in force: %s", path, faults)
            self._telemetry.policy_reloaded(succeeded=False)
            self._tell(faults)
        else:
            _log.info("policy %s was read again, and is in force", path)
            self._telemetry.policy_reloaded(succeeded=True)
            self._tell("")


def held_by(profiles: Iterable[Profile]) -> Mapping[str, object]:
    """Returns the functions that give back what users' rules have reserved, and know it by their module's variables."""
    rules = (rule for profile in profiles for rule in profile.permit if isinstance(rule, CustomReserve))
    return {rule.name: rule.undo.function.function for rule in rules if rule.undo is not None}


def refuse_changes(before: Mapping[str, object], now: Mapping[str, object]) -> None:
    """Raises ConfigurationError for each path of a policy whose value is another one now."""
    changed = sorted(path for path in before.keys() & now.keys() if now[path] != before[path])
    if changed:
        raise ConfigurationError([f"{path}: cannot change while the process runs, restart it" for path in changed])
