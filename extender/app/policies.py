"""Reads the policy that the settings name, and reads it again when it has changed.

The result is a validated `Policy`. After each change of the files, the process adopts a new `Policy`.

`PolicyTrial` tries the rules of a changed policy on real pods before the policy is adopted. A rule that imports without
an error may still raise for every pod, and would then stop all placement. So the new rules first decide the newest
placed pods and the pending pods. Only rules without effects are tried, so none of Reserve, Permit, PreBind and
PostBind.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from dataclasses import dataclass, replace
from heapq import nlargest
from itertools import islice
from pathlib import Path
from typing import Final
from urllib.parse import quote

from extender.cache.cache import Cache
from extender.cluster.credentials import credentials_of
from extender.cluster.kube_client import ApiCall, KubeClient
from extender.config.cluster_access import IN_CLUSTER, ClusterAccess
from extender.config.settings import Command, Settings
from extender.engine.decide import SchedulingCycle, Scope
from extender.errors import BindingFailed, ClusterError, ConfigurationError, DeadlineExceeded, NotFound, Outdated
from extender.framework.profile import Profile, Profiles, WeightedPriority
from extender.framework.status import Refusal, unschedulable
from extender.plugins.device_scoring import scoring_with
from extender.plugins.registry import default_profile
from extender.plugins.users.binding import CustomBind, CustomReserve
from extender.plugins.users.function import CustomRule, custom_rules, file_of, place_of
from extender.plugins.users.handle import RuleHost
from extender.plugins.users.predicate import CustomPostFilter, CustomPredicate
from extender.plugins.users.priority import CustomDevicePriority, CustomPriority
from extender.plugins.users.queueing import CustomPreEnqueue, CustomQueueSort
from extender.plugins.users.rule_calls import LiveHost, OfflineHost, described
from extender.policy.library import Library, fresh_imports
from extender.policy.loading import load as load_policy
from extender.policy.policy import Policy, parsed
from extender.runtime.clock import Clock, Deadline, SystemClock, TimeLimit
from extender.runtime.ports import Telemetry
from extender.runtime.threads import HangingCalls
from extender.table import PodInfo, Table

CONFIG_MAP = "configmap:"
_TRIES = 5
_GZIP, _GZIP_FORMAT = b"\x1f\x8b", zlib.MAX_WBITS | 16
_MOST_BYTES = 64 * 1024 * 1024
# Python files, also in packages, but not those in `..data`, where a mounted ConfigMap keeps its files.
_MODULES = ("*.py", "[!.]*/*.py")

_CLOCK = SystemClock()
_log = logging.getLogger(__name__)


def profiles_of(policy: Path | None, access: ClusterAccess = IN_CLUSTER, version: str | None = None) -> Profiles:
    """Returns the profiles that a scheduler with this policy uses; arguments and errors are those of `policy_of`.

    Args:
        version: the version of Kubernetes to follow; None for that of the policy.
    """
    read = policy_of(policy, access=access)
    return replace(read, features=parsed("", read.features, version)).scheduler_profiles()


def policy_of(policy: Path | None, host: RuleHost | None = None, access: ClusterAccess = IN_CLUSTER) -> Policy:
    """Returns the policy that the settings name.

    Users' modules that are not installed are imported from the folder of the policy's file.

    Args:
        policy: a file, or configmap:NAMESPACE/NAME in the cluster of `access`; None: kube-scheduler's default rules.
        host: runs users' rules and handles their errors; None means that errors are raised.

    Raises:
        ConfigurationError: the policy has faults; the error lists all of them.
    """
    if policy is None:
        return Policy((default_profile(),))
    try:
        text = policy_text(policy, access)
        read = load_policy(text, Library(host=host, folder=folder_of(policy)))
    except OSError as error:
        raise ConfigurationError([f"policy {policy}: {error.strerror}"]) from None
    except ClusterError as error:
        raise ConfigurationError([f"policy {policy}: {error}"]) from None
    except ConfigurationError as error:
        raise ConfigurationError([f"policy {policy}: {fault}" for fault in error.faults]) from None
    for note in read.notes:
        _log.warning("policy entry without effect policy=%s entry=%r", policy, note)
    return read


def log_failure(rule: str, error: BaseException) -> None:
    """Logs the failure of a user's rule. Called for the first error of each type."""
    _log.error("rule failed, its later errors of this type are only counted rule=%s", rule, exc_info=error)


def log_left_out(rule: str, error: BaseException) -> None:
    """Logs the failure of a rule that is ignored. Called for the first error of each type."""
    _log.error("rule failed, pods are placed without it, its later errors of this type are only counted rule=%s", rule,
               exc_info=error)  # fmt: skip


def log_message(rule: str, pod: str, message: str) -> None:
    """Logs a message that a user's rule wrote about a pod."""
    _log.info("rule message rule=%s pod=%s message=%r", rule, pod, message)


def watching(hanging: HangingCalls) -> Callable[[str, str, str], AbstractContextManager[None]]:
    """Returns a function that takes (rule, pod, node) and returns a context manager for a call of that rule.

    If the call hangs, `hanging.log` logs it.
    """

    def watch(rule: str, pod: str, node: str) -> AbstractContextManager[None]:
        def warn(seconds: float) -> None:
            _log.warning("rule has not returned yet rule=%s pod=%s node=%s seconds=%d", rule, pod, node, seconds)

        return hanging.watch(warn)

    return watch


class PolicyFiles:
    """The files, or the ConfigMap, from which a policy is read.

    Attributes:
        folder: the folder with the modules of users' rules; "" for a ConfigMap of the cluster.
    """

    def __init__(self, policy: Path | None, access: ClusterAccess) -> None:
        self._policy = policy
        self.folder = "" if policy is None else folder_of(policy)
        is_config_map = policy is not None and _is_config_map(policy)
        self._client = KubeClient(credentials_of(access)) if is_config_map else None

    def contents(self) -> Mapping[str, bytes]:
        """Returns the content of each file by path. If a file cannot be read, its content is the error.

        Raises:
            ClusterError: the ConfigMap cannot be read, although it may exist.
        """
        if self._policy is None:
            return {}
        if self._client is not None:
            try:
                return {str(self._policy): _config_map(self._policy, self._client)}
            except NotFound as error:
                return {str(self._policy): str(error).encode()}
        return {str(path): _content(path) for path in self._paths(self._policy)}

    def stamps(self) -> Mapping[str, tuple[int, ...]]:
        """Returns the stamp of each readable file, by path. Every write of a file changes its stamp."""
        paths = () if self._policy is None or self._client is not None else self._paths(self._policy)
        stamps: dict[str, tuple[int, ...]] = {}
        for path in paths:
            with suppress(OSError):
                status = path.stat()
                stamps[str(path)] = (status.st_ino, status.st_mtime_ns, status.st_ctime_ns)
        return stamps

    def _paths(self, policy: Path) -> list[Path]:
        return [policy, *(path for pattern in _MODULES for path in policy.parent.glob(pattern))]


def _content(path: Path) -> bytes:
    try:
        return _uncompressed(path.read_bytes())
    except (ConfigurationError, OSError) as error:
        return str(error).encode()


def _uncompressed(data: bytes) -> bytes:
    """Returns the content of a file that may be gzipped. Raises ConfigurationError."""
    if data[: len(_GZIP)] != _GZIP:
        return data
    decompressor = zlib.decompressobj(_GZIP_FORMAT)
    try:
        text = decompressor.decompress(data, _MOST_BYTES)
    except zlib.error as error:
        raise ConfigurationError([f"the gzip file is damaged; create or copy it again ({error})"]) from None
    if not decompressor.eof:
        limit = f"more than the limit of {_MOST_BYTES} bytes" if decompressor.unconsumed_tail else "cut off"
        raise ConfigurationError([f"the gzip file is {limit}"])
    return text


def folder_of(policy: Path) -> str:
    """Returns the absolute path of the folder of the policy's file; "" for a ConfigMap.

    Symbolic links are not resolved, because an update of a mounted ConfigMap changes their targets.
    """
    return "" if _is_config_map(policy) else str(policy.parent.absolute())


def _is_config_map(policy: Path) -> bool:
    return str(policy).startswith(CONFIG_MAP)


def policy_text(policy: Path, access: ClusterAccess) -> bytes:
    """Returns the text of the policy's file or ConfigMap. Raises ConfigurationError, ClusterError or OSError."""
    if not _is_config_map(policy):
        return _uncompressed(policy.read_bytes())
    with closing(KubeClient(credentials_of(access))) as client:
        return _config_map(policy, client)


def _config_map(policy: Path, client: KubeClient) -> bytes:
    """Returns configmap:NAMESPACE/NAME as JSON. Raises ConfigurationError or ClusterError."""
    namespace, separator, name = str(policy).removeprefix(CONFIG_MAP).partition("/")
    if not (namespace and separator and name):
        raise ConfigurationError([f"expected {CONFIG_MAP}NAMESPACE/NAME"])
    return client.call(ApiCall("GET", f"/api/v1/namespaces/{quote(namespace, '')}/configmaps/{quote(name, '')}"))


Adopt = Callable[[Policy, str], None]
"""Takes a policy and its text, and puts the policy in force between two decisions.

It raises ConfigurationError, and changes nothing, if the policy needs a restart.
"""
PolicyReloaded = Callable[[str | None], object]
"""Called after the policy was read again: with the faults, or with None if the policy was adopted."""


class PolicyReload:
    """Reads the policy, and reads it again after its file or a module next to it has changed."""

    def __init__(
        self,
        settings: Settings,
        telemetry: Telemetry,
        reloaded: PolicyReloaded = lambda _faults: None,
        clock: Clock = _CLOCK,
        hanging: HangingCalls | None = None,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._hanging = hanging or HangingCalls(clock)
        self._telemetry = telemetry
        self._reloaded = reloaded
        self._files = PolicyFiles(settings.policy, settings.access)
        self._requested = False
        self._seen: Mapping[str, bytes] = {}  # the contents of the files at the last check
        self._read: Mapping[str, bytes] = {}  # the contents of the files when the policy was last read
        self._adopted: Mapping[str, bytes] = {}  # the contents of the files of the policy in force

    def read(self, adopt: Adopt = lambda _policy, _text: None) -> Policy:
        """Reads the current policy, calls `adopt` to put it in force, and returns it.

        Users' modules are imported again only if one of them has changed. Otherwise their variables keep their values.

        Raises:
            ConfigurationError: the policy is faulty or needs a restart; the earlier policy stays in force.
        """
        for _ in range(_TRIES):
            with suppress(Outdated):
                return self._read_whole(adopt)
        raise ConfigurationError(
            [f"policy {self._settings.policy}: it changed while it was read, {_TRIES} times in a row"]
        )

    def _read_whole(self, adopt: Adopt) -> Policy:
        """Reads the policy and its modules, calls `adopt`, and returns the policy.

        Raises:
            Outdated: a file changed during the read, so old and new parts may be mixed.
        """
        settings = self._settings
        path = str(settings.policy)
        stamps = self._files.stamps()
        contents = self._contents()
        self._read = contents
        self._seen = contents
        # A new LiveHost counts errors from 0, so the first errors of the reloaded rules are logged.
        limit = TimeLimit(self._clock, settings.decision_seconds)
        ignores = settings.on_rule_failure == "ignore"
        host = LiveHost(
            self._telemetry, self._clock, limit, log_left_out if ignores else log_failure, log_message,
            watching(self._hanging), ignores_failures=ignores,
        )  # fmt: skip
        modules_changed = {**contents, path: b""} != {**self._adopted, path: b""}
        with fresh_imports(self._files.folder) if modules_changed else nullcontext():
            policy = policy_of(settings.policy, host, settings.access)
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
        """Makes the next `look` read the policy again, even if it is unchanged. A signal handler may call this."""
        self._requested = True

    def look(self, adopt: Adopt) -> None:
        """Reads the policy again if `request` was called or the files have changed; logs the result."""
        requested = self._requested
        self._requested = False
        if self._settings.policy is not None and (requested or self._has_changed()):
            self._reload(adopt)

    def _has_changed(self) -> bool:
        """Returns True if the files differ from the policy that was last read, and are no longer being written.

        Files that were the same in the last two checks are probably not being written.
        """
        seen_before = self._seen
        try:
            self._seen = self._files.contents()
        except ClusterError as error:  # the ConfigMap could not be read, but the policy may be unchanged
            _log.debug("policy not checked policy=%s reason=%r", self._settings.policy, str(error))
            return False
        return seen_before == self._seen != self._read

    def _reload(self, adopt: Adopt) -> None:
        path = self._settings.policy
        try:
            self.read(adopt)
        except ConfigurationError as error:
            faults = "; ".join(fault.removeprefix(f"policy {path}: ") for fault in error.faults)
            _log.error("policy not adopted, the earlier one stays in force policy=%s reason=%r", path, faults)
            self._telemetry.policy_reloaded(succeeded=False)
            self._reloaded(faults)
        else:
            _log.info("policy adopted policy=%s", path)
            self._telemetry.policy_reloaded(succeeded=True)
            self._reloaded(None)


@dataclass(frozen=True, slots=True)
class Unreserve:
    """The function that undoes the reservations of a user's rule.

    A reload cannot replace the function, because the rule keeps its reservations in variables of its module.
    """

    function: Callable[..., object]

    def __str__(self) -> str:
        """Returns the name of the function's file in parentheses, to be appended to a message."""
        file = file_of(self.function)
        return "" if file is None else f" (its unreserve is in {file})"


def unreserves_of(profiles: Iterable[Profile]) -> Mapping[str, object]:
    """Returns the `Unreserve` of each user's rule that has one, by the name of the rule."""
    rules = (rule for profile in profiles for rule in profile.permit if isinstance(rule, CustomReserve))
    return {rule.name: Unreserve(rule.undo.decorated.function) for rule in rules if rule.undo is not None}


def watched(policy: Policy) -> frozenset[str]:
    """Returns the paths of the kinds that the policy watches.

    Two policies are compared by these paths. Their `Kind` objects always differ, because each reading creates new
    types.
    """
    return frozenset(kind.path for kind in policy.watch)


def refuse_changes(present: Mapping[str, object], new: Mapping[str, object]) -> None:
    """Checks that a new policy changes no value that must stay the same while the process runs.

    A path that only one of the two policies has is ignored.

    Args:
        present: path in the present policy -> value that must stay the same.
        new: path in the new policy -> its value there.

    Raises:
        ConfigurationError: the policies have different values at a path.
    """
    changed = sorted(path for path in present.keys() & new.keys() if new[path] != present[path])
    if changed:
        places = ((path, new[path] if isinstance(new[path], Unreserve) else "") for path in changed)
        raise ConfigurationError(
            [f"{path}{place}: cannot change while the process runs, restart it" for path, place in places]
        )


BUDGET_SECONDS: Final = 3.0
"""No further pod is tried after this time, because the trial takes CPU time from the decisions of the process."""
MAX_CALL_SECONDS: Final = 4.0
"""The time limit of the rules for one pod, if decisions have a longer limit or none."""
_PLACED_PODS = 20
_WHOLE_NODES = 100
_BIND_NODES = 20


@dataclass(frozen=True, slots=True)
class PolicyTrial:
    """Compares the rules of a new policy with those in force.

    Attributes:
        profiles: the profiles in force.
        decision_seconds: the time limit of a decision; 0 for none.
    """

    command: Command
    cache: Cache
    profiles: Profiles
    clock: Clock
    decision_seconds: float

    def check(self, policy: Policy) -> None:
        """Raises ConfigurationError if a new rule fails for a pod that the policy in force decides."""
        new = policy.scheduler_profiles()
        if not any(True for _ in custom_rules(new.all)):
            return
        ends_at = self.clock.monotonic() + BUDGET_SECONDS
        for pod in self._pods():
            for describes_nodes in (False, True) if self.command == "serve" else (False,):
                failure = self._failure(new.of(pod.pod), pod, describes_nodes)
                if failure and not self._failure(self.profiles.of(pod.pod), pod, describes_nodes):
                    call = ", if a call describes nodes that the cluster does not have" if describes_nodes else ""
                    raise ConfigurationError(
                        [f"{failure} (tried with the pod {pod.pod.key}{call}, which the policy in force decides)"]
                    )
            if self.clock.monotonic() >= ends_at:
                return

    def _pods(self) -> Iterator[PodInfo]:
        """Yields the newest placed pods and all pending pods, first one pod of each controller."""
        with self.cache.snapshot("policy trial") as table:
            pods = nlargest(_PLACED_PODS, table.pods, key=lambda info: info.pod.metadata.created_seconds)
        pods += self.cache.overview().unplaced
        by_owner = {owner.uid if (owner := info.pod.controller) else info.uid: info for info in reversed(pods)}
        first = {info.uid: info for info in reversed(by_owner.values())}
        yield from first.values()
        yield from (info for info in pods if info.uid not in first)

    def _failure(self, profile: Profile, pod: PodInfo, describes_nodes: bool) -> str | None:
        """Returns how a rule of the profile fails for the pod; None if all of them answer.

        Args:
            describes_nodes: True to judge nodes as if the call described them as whole objects, and the cache did not
                know them. Such nodes have no pods, and there are no other objects.
        """
        seconds = min(self.decision_seconds or MAX_CALL_SECONDS, MAX_CALL_SECONDS)
        rule: CustomRule | None = None
        try:
            with self.cache.snapshot("policy trial", Deadline(self.clock, seconds)) as cached:
                table = _only_nodes(cached) if describes_nodes else cached
                for rule in custom_rules([profile]):
                    _try(replace(rule, host=OfflineHost()), pod, table)
        except DeadlineExceeded as error:
            return str(error)
        except Exception as error:  # a user's rule may raise any exception
            place = place_of(rule.decorated.function) if rule is not None else ""
            return f"{rule.name if rule is not None else pod.pod.key} fails: {described(error, place)}"
        return None


def _try(rule: CustomRule, pod: PodInfo, table: Table) -> None:
    """Calls the rule, on all nodes of the table. Raises the error of the rule."""
    match rule:
        case CustomPredicate():
            _decide(replace(_NO_RULES, predicates=[rule]), pod, table)
        case CustomPriority():
            _decide(replace(_NO_RULES, priorities=[WeightedPriority(rule)]), pod, table)
        case CustomPostFilter():
            _decide(replace(_NO_RULES, predicates=[_RefuseAll()], post_filter=[rule]), pod, table)
        case CustomDevicePriority():
            _decide(replace(_NO_RULES, priorities=[WeightedPriority(scoring_with(rule))]), pod, table)
        case CustomBind():
            with suppress(BindingFailed), table.hypothetically(removed=[pod.uid]):  # the rule may refuse the pod
                for row in table.nodes.rows[:_BIND_NODES].tolist():
                    rule.choose(pod, row, table)
        case CustomPreEnqueue():
            rule.refuse(pod, table)
        case CustomQueueSort():
            rule.key(pod)


def _decide(profile: Profile, pod: PodInfo, table: Table) -> None:
    with table.hypothetically(removed=[pod.uid]):
        decision = SchedulingCycle(profile).decide(pod, table, scope=Scope.EVERYTHING)
    if decision.cause is not None:
        raise decision.cause


class _RefuseAll:
    """A predicate that refuses every node, so that a PostFilter rule is called."""

    name = "PolicyTrial"

    def prepare(self, _pod: PodInfo, _table: Table) -> Refusal:
        return unschedulable(self.name, "node(s) were refused, to try this rule")


_NO_RULES = Profile("policy trial", (), (), preemption=None, reserving=frozenset())


def _only_nodes(table: Table) -> Table:
    """Returns a table with some of the nodes and nothing else, like that of filter for nodes outside the cache."""
    nodes = Table(table.features)
    nodes.deadline = table.deadline
    for row in islice(table.nodes.rows.tolist(), _WHOLE_NODES):
        nodes.set_node(table.nodes.node(row))
    return nodes
