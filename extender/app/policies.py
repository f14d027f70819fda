"""The policy of a process: where it is read from, and read again when it has changed.

In: settings. Out: a `Policy`, and later another one, validated whole, for the process to adopt.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from extender.cluster.http.credentials import credentials_of
from extender.cluster.http.kube_client import KubeClient
from extender.config.settings import Settings
from extender.errors import ClusterError, ConfigurationError, NotFound, Outdated
from extender.framework.profile import Profile, Profiles
from extender.plugins.users import CountedFailures, RuleFailures
from extender.plugins.users.function import file_of
from extender.plugins.users.reserve import CustomReserve
from extender.policy.library import Library, fresh_imports
from extender.policy.loading import load as load_policy
from extender.policy.policy import Policy, provider
from extender.runtime.ports import Telemetry

CONFIG_MAP = "configmap:"
_TRIES = 5
_MODULES = "*.py", "[!.]*/*.py"  # those of packages too; not what a mounted ConfigMap hides behind `..data`

_log = logging.getLogger(__name__)


def profiles_of(policy: Path | None, provider_name: str, kubeconfig: Path | None = None) -> Profiles:
    """Returns the rules by schedulerName; see `policy_of`."""
    found = policy_of(policy, provider_name, kubeconfig=kubeconfig)
    return Profiles(found.profiles, found.features)


def policy_of(
    policy: Path | None, provider_name: str, failures: RuleFailures | None = None, kubeconfig: Path | None = None
) -> Policy:
    """Returns the rules that the settings name.

    A user's module may stand in the folder of the policy's file, which is searched last.

    Args:
        policy: a file, or configmap:NAMESPACE/NAME of the cluster that `kubeconfig` is of.
        failures: told when users' rules fail; without it their errors are raised.

    Raises:
        ConfigurationError: with every fault of the policy.
    """
    if policy is None:
        return Policy((provider(provider_name),))
    try:
        text = policy_text(policy, kubeconfig)
        return load_policy(text, Library(failures=failures, folder=folder_of(policy)))
    except OSError as error:
        raise ConfigurationError([f"policy {policy}: {error.strerror}"]) from None
    except ClusterError as error:
        raise ConfigurationError([f"policy {policy}: {error}"]) from None
    except ConfigurationError as error:
        raise ConfigurationError([f"policy {policy}: {fault}" for fault in error.faults]) from None


def log_failure(rule: str, error: BaseException) -> None:
    """Logs the first failure of its kind of a user's rule."""
    _log.error("rule %s failed; further failures of its kind are only counted", rule, exc_info=error)


class PolicyFiles:
    """The files, or the ConfigMap, that a policy is read from.

    Attributes:
        folder: where modules of users' rules may stand; "" for a ConfigMap of the cluster.
    """

    def __init__(self, policy: Path | None, kubeconfig: Path | None) -> None:
        self._policy = policy
        self.folder = "" if policy is None else folder_of(policy)
        by_api = policy is not None and _is_config_map(policy)
        self._client = KubeClient(credentials_of(kubeconfig)) if by_api else None

    def contents(self) -> Mapping[str, bytes]:
        """Returns the content of each file by its path, the reason where one cannot be read. Raises ClusterError."""
        if self._policy is None:
            return {}
        if self._client is not None:
            try:
                return {str(self._policy): _config_map(self._policy, self._client)}
            except NotFound as error:
                return {str(self._policy): str(error).encode()}
        return {str(path): _content(path) for path in self._paths(self._policy)}

    def stamps(self) -> Mapping[str, tuple[int, ...]]:
        """Returns what shows of each file that can be read whether it was written, if only with what was there."""
        paths = () if self._policy is None or self._client is not None else self._paths(self._policy)
        found: dict[str, tuple[int, ...]] = {}
        for path in paths:
            with suppress(OSError):
                status = path.stat()
                found[str(path)] = status.st_ino, status.st_mtime_ns, status.st_ctime_ns
        return found

    def _paths(self, policy: Path) -> list[Path]:
        return [policy, *(path for pattern in _MODULES for path in policy.parent.glob(pattern))]


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        return str(error).encode()


def folder_of(policy: Path) -> str:
    """Returns the folder of the policy's file as it was named: a ConfigMap that is mounted changes what is behind."""
    return "" if _is_config_map(policy) else str(policy.parent.absolute())


def _is_config_map(policy: Path) -> bool:
    return str(policy).startswith(CONFIG_MAP)


def policy_text(policy: Path, kubeconfig: Path | None) -> bytes:
    """Returns the text of a policy's file or ConfigMap. Raises ConfigurationError, ClusterError, OSError."""
    if not _is_config_map(policy):
        return policy.read_bytes()
    client = KubeClient(credentials_of(kubeconfig))
    try:
        return _config_map(policy, client)
    finally:
        client.close()


def _config_map(policy: Path, client: KubeClient) -> bytes:
    """Returns configmap:NAMESPACE/NAME as JSON. Raises ConfigurationError, ClusterError."""
    namespace, separator, name = str(policy).removeprefix(CONFIG_MAP).partition("/")
    if not (namespace and separator and name):
        raise ConfigurationError([f"want {CONFIG_MAP}NAMESPACE/NAME"])
    return client.call("GET", f"/api/v1/namespaces/{quote(namespace, '')}/configmaps/{quote(name, '')}", b"")


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
        for _ in range(_TRIES):
            with suppress(Outdated):
                return self._read_whole(adopt)
        raise ConfigurationError([f"policy {self._settings.policy}: it changes while it is read"])

    def _read_whole(self, adopt: Adopt) -> Policy:
        """Raises Outdated: a file has changed meanwhile, so that it may be half of one policy and half of another."""
        settings, path = self._settings, str(self._settings.policy)
        stamps = self._files.stamps()
        self._read = self._seen = contents = self._contents()
        failures = CountedFailures(self._telemetry, log_failure)  # logs the first failure of each rule that is new
        changed = {**contents, path: b""} != {**self._adopted, path: b""}
        with fresh_imports(self._files.folder) if changed else nullcontext():
            policy = policy_of(settings.policy, settings.provider, failures, settings.kubeconfig)
            if self._contents() != contents or self._files.stamps() != stamps:
                raise Outdated(f"policy {path}")
            adopt(policy, contents.get(path, b"").decode(errors="replace"))
        self._adopted = contents
        return policy

    def _contents(self) -> Mapping[str, bytes]:
        try:
            return self._files.contents()
        except (ClusterError, ConfigurationError) as error:
            raise ConfigurationError([f"policy {self._settings.policy}: {error}"]) from None

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


@dataclass(frozen=True, slots=True)
class Held:
    """A function that gives back what a user's rule has reserved, and knows it by its module's variables."""

    function: Callable[..., object]

    def __str__(self) -> str:
        """Returns the file that defines the function, as the rest of a line."""
        file = file_of(self.function)
        return "" if file is None else f" (its unreserve is in {file})"


def held_by(profiles: Iterable[Profile]) -> Mapping[str, object]:
    """Returns what gives back what users' rules have reserved, by the rule's name."""
    rules = (rule for profile in profiles for rule in profile.permit if isinstance(rule, CustomReserve))
    return {rule.name: Held(rule.undo.function.function) for rule in rules if rule.undo is not None}


def refuse_changes(before: Mapping[str, object], now: Mapping[str, object]) -> None:
    """Raises ConfigurationError for each path of a policy whose value is another one now."""
    changed = sorted(path for path in before.keys() & now.keys() if now[path] != before[path])
    if changed:
        places = ((path, now[path] if isinstance(now[path], Held) else "") for path in changed)
        raise ConfigurationError(
            [f"{path}{place}: cannot change while the process runs, restart it" for path, place in places]
        )
