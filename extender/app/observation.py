"""Creates the observers of decisions, connects them to cache, loop and verbs, and runs `extender record`.

`PastDecisions` remembers the last decisions about each pod, up to a number of bytes and an age.
"""

from __future__ import annotations

import signal
import threading
from base64 import b64encode
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import msgspec

from extender.app.feed import CacheEvidence, FedProcess, feed_factory_of
from extender.app.policies import policy_text
from extender.cache.cache import Cache
from extender.cache.changes import Changes
from extender.cache.observed import CacheSize
from extender.config.settings import Settings
from extender.engine.decision import Chosen, Failure
from extender.errors import ClusterError, ConfigurationError, MalformedInput, UnknownPod
from extender.extender_v1.messages import (
    ExtenderArgs,
    ExtenderBindingArgs,
    ExtenderBindingResult,
    ExtenderFilterResult,
    ExtenderPreemptionArgs,
    ExtenderPreemptionResult,
    HostPriorityList,
)
from extender.groups import GroupDecision, Tree, member_failure
from extender.groups.decision import UNSCHEDULABLE_GROUP, leaf_decisions
from extender.groups.group_preemption import GroupPreemption
from extender.groups.group_tree import waiting_members
from extender.model.pod import Pod
from extender.model.redaction import Redaction
from extender.policy.policy import parsed
from extender.recording.lines import RecordedSettings
from extender.recording.recorder import (
    IN_THE_WAY,
    RecordedChanges,
    RecordedRandom,
    Recorder,
    RecordingObserver,
    RotatingFiles,
)
from extender.runtime import strict_yaml
from extender.runtime.clock import Clock, SystemClock
from extender.runtime.process import product_version
from extender.runtime.unsettled import UnsettledWrites
from extender.scheduler.scheduler_ports import AttemptObserver, Events, EventType
from extender.table import PodInfo, Table
from extender.verbs.verb import FAILED, PASSED
from extender.web import log
from extender.web.answers import Answer, Page, error_answer, json_answer
from extender.web.log import LONGEST_KEY, LONGEST_TEXT, cut
from extender.web.metrics import Metrics

# The last decisions are kept for so long, in about so much memory.
_DECISIONS_SECONDS, _DECISIONS_BYTES = 3600.0, 16 * 1024 * 1024
_KEY = "keyData"
_NO_KEY = b64encode(b"not recorded").decode()
SYNC_SECONDS, _LOOK_SECONDS, _POLL_SECONDS = 60.0, 1.0, 0.05


@dataclass(frozen=True, slots=True)
class ObservedEvents:
    """A writer of events (scheduler_ports.Events) that first passes each event to the observers."""

    events: Events
    observers: Sequence[AttemptObserver]

    def record(
        self, pod: Pod, kind: EventType, reason: str, action: str, note: str, related: Pod | None = None
    ) -> None:
        for observer in self.observers:
            observer.event_recorded(pod, kind, reason, note)
        self.events.record(pod, kind, reason, action, note, related)


class Observation:
    """The observers of one process: its memory of decisions, and its recorder if decisions are recorded.

    Attributes:
        changes: the journal that the cache must use, so that changes are recorded; None without a recording.
        observers: each is a CallObserver and an AttemptObserver.
        recording: passes decisions to the recorder; None if the settings name no recording. It is one of the observers.
        pages: path -> page, for the pages that show the remembered decisions.
    """

    def __init__(
        self, settings: Settings, mode: str, metrics: Metrics, clock: Clock, redaction: Redaction | None = None
    ) -> None:
        """Creates the observers that the settings require.

        Args:
            mode: serve, schedule or record.
            redaction: see Recorder.
        """
        self.changes: Changes | None = None
        self.observers: list[Any] = []
        self.recording: RecordingObserver | None = None
        self.pages: dict[str, Page] = {}
        past = PastDecisions(clock, _DECISIONS_BYTES, _DECISIONS_SECONDS)
        self.observers.append(past)
        self.pages[DECISIONS] = past.page
        self._recorder: Recorder | None = None
        self._random: RecordedRandom | None = None
        if settings.record is not None:
            self._recorder = recorder_of(settings, mode, metrics, clock, redaction)
            self.changes = RecordedChanges(self._recorder)
            self._random = RecordedRandom()
            self.recording = RecordingObserver(self._recorder, self.changes, self._random)
            self.observers.append(self.recording)

    def random(self, seed: int | None) -> Random:
        """Returns the random number generator for scheduling cycles. A recording contains the numbers that it draws."""
        if self._random is None:
            return Random(seed)  # noqa: S311  it breaks ties
        self._random.seed(seed)
        return self._random

    def events(self, events: Events) -> Events:
        """Returns a writer of events that also passes them to the observers."""
        return ObservedEvents(events, self.observers) if self.observers else events

    def policy_changed(self, text: str) -> None:
        """Begins a new file of the recording, because decisions now follow another policy."""
        if self._recorder is not None:
            self._recorder.settings_changed(policy=without_keys(text))

    def version_changed(self, version: str) -> None:
        """Begins a new file of the recording, because decisions now follow another version of Kubernetes."""
        if self._recorder is not None:
            self._recorder.settings_changed(kubernetes_version=version)

    def start(self) -> None:
        """Starts to write the recording. Call it in the worker process, after the fork."""
        if self._recorder is not None:
            self._recorder.start()

    def revive(self) -> list[str]:
        """Restarts the recorder's thread if it has ended; returns its name."""
        return ["recorder"] if self._recorder is not None and self._recorder.revive() else []

    def stop(self) -> None:
        """Writes the rest of the recording and closes its file."""
        if self._recorder is not None:
            self._recorder.stop()


def recorder_of(
    settings: Settings, mode: str, metrics: Metrics, clock: Clock, redaction: Redaction | None = None
) -> Recorder:
    """Returns the recorder that writes to the file in the setting `record`. A redacted recording has no policy.

    Raises:
        ConfigurationError: the recording would overwrite a file that is not a recording; or the policy has private keys
            and is not YAML, is a damaged or too large gzip file, or is a ConfigMap whose name has the wrong form.
        ClusterError, OSError: the policy, or a file that the recording would overwrite, cannot be read.
    """
    assert settings.record is not None
    check_places(settings)
    text = None
    if settings.policy is not None and redaction is None:
        text = without_keys(policy_text(settings.policy, settings.access).decode("utf-8", "replace"))
    recorded = RecordedSettings(
        mode=mode, policy=text, feature_gates=settings.feature_gates,
        kubernetes_version=settings.chosen_version or "",
        score_scale=settings.score_scale, scheduler_filters=settings.scheduler_filters,
        coscheduling=settings.coscheduling,
    )  # fmt: skip
    files = RotatingFiles(settings.record, settings.record_bytes)
    return Recorder(files, recorded, product_version(), clock, metrics.not_recorded, redaction=redaction)


def without_keys(text: str) -> str:
    """Returns a policy without private keys. A replay does not need them, because it calls no extenders.

    Raises:
        ConfigurationError: the policy has private keys, but is not YAML, so they cannot be found.
    """
    if _KEY not in text:
        return text
    try:
        document = strict_yaml.load(text)
    except MalformedInput as error:
        raise ConfigurationError([f"the policy is not recorded: {error}"]) from None
    return msgspec.json.encode(_without_keys(document)).decode()


def _without_keys(value: object) -> object:
    match value:
        case dict():
            return {field: _NO_KEY if field == _KEY else _without_keys(inner) for field, inner in value.items()}
        case list():
            return [_without_keys(inner) for inner in value]
        case str() if _KEY in value:  # an entry of a ConfigMap: a policy with a private key
            return without_keys(value)
        case _:
            return value


def check_places(settings: Settings) -> None:
    """Checks that a recording would not overwrite another file.

    Raises:
        ConfigurationError: the recording would overwrite a file that is not a recording.
        OSError: a file that the recording would overwrite cannot be read.
    """
    if settings.record is not None:
        others = RotatingFiles(settings.record, settings.record_bytes).others()
        if others:
            raise ConfigurationError([f"record: {path}: {IN_THE_WAY}" for path in others])


def record(
    settings: Settings, seconds: float | None, progress: Callable[[CacheSize], object], *, redact: bool = False
) -> CacheSize:
    """Records a cluster; returns how many nodes and pods the cluster has at the end.

    Args:
        seconds: how long to record; None means until SIGTERM or SIGINT.
        progress: called with the numbers of nodes and pods once a second.
        redact: True to replace names, label values and images with hashes, as in a snapshot.

    Raises:
        ConfigurationError, OSError: the recording cannot start.
        ClusterError: the cluster cannot be listed.
    """
    log.configure(settings.log_format, settings.log_level)
    clock, ending = SystemClock(), threading.Event()
    metrics = Metrics(clock, product_version())
    observed = Observation(settings, "record", metrics, clock, Redaction() if redact else None)
    cache = Cache(clock, metrics, changes=observed.changes)
    never_written = UnsettledWrites(0.0)
    features = parsed(settings.feature_gates, version=settings.chosen_version)
    fed = FedProcess(cache, metrics, clock, never_written, CacheEvidence(cache), features)
    feed = feed_factory_of(settings)(fed)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ending.set())
    observed.start()
    feed.start()
    try:
        deadline = clock.monotonic() + SYNC_SECONDS
        while (missing := feed.missing()) and not ending.wait(_POLL_SECONDS):
            if clock.monotonic() > deadline:
                raise ClusterError(f"no list of {', '.join(missing)} arrived in {SYNC_SECONDS:g} s")
        end = float("inf") if seconds is None else clock.monotonic() + seconds
        while (remaining := end - clock.monotonic()) > 0 and not ending.wait(min(remaining, _LOOK_SECONDS)):
            progress(cache.size())
        return cache.size()
    finally:
        feed.stop()
        observed.stop()


DECISIONS = "/debug/decisions"
_MOST_OF_A_POD, _MOST_VICTIMS = 32, 20
_DECISION_BYTES, _POD_BYTES = 80, 400  # about how much memory a decision and a pod take without their texts


class PastDecision(msgspec.Struct, frozen=True, omit_defaults=True):
    """One remembered decision about a pod.

    Attributes:
        at: when it was made, in seconds since the epoch.
        what: the extender verb that decided, such as "filter"; for the scheduling loop, "attempt" or "event".
        outcome: the outcome in words.
        node: the chosen node; "" if no node was chosen.
        reasons: reason -> the number of nodes refused for it.
        victims: the pods to evict. An attempt lists them as namespace/name, the preempt verb by UID.
    """

    at: float
    what: str
    outcome: str
    node: str = ""
    reasons: dict[str, int] = {}
    victims: list[str] = []


_ENCODE, _DECODE = msgspec.json.Encoder().encode, msgspec.json.Decoder(PastDecision).decode


class PastDecisions:
    """Remembers the last decisions about each pod. It is a CallObserver and an AttemptObserver.

    If the decisions take too much memory, the pods whose last decisions are the oldest are dropped.

    Each decision is stored as JSON. JSON takes a third of the memory of Python objects, and is one object instead of
    six or more. Few objects are better, because a decision lives for an hour among the short-lived objects of large
    requests. The C library cannot return a page of memory while an object on the page is in use.

    Args:
        limit_bytes: about how much memory the decisions may take.
        age_seconds: the age at which a decision is dropped.
    """

    def __init__(self, clock: Clock, limit_bytes: int, age_seconds: float) -> None:
        self._clock = clock
        self._limit_bytes = limit_bytes
        self._age_seconds = age_seconds
        self._lock = threading.Lock()
        self._pods: OrderedDict[str, list[bytes]] = OrderedDict()
        self._bytes = 0

    def called(self, verb: str, outcome: str, request: object, result: object, error: str = "") -> None:
        if isinstance(request, ExtenderArgs | ExtenderPreemptionArgs):
            key = request.pod.key
        elif isinstance(request, ExtenderBindingArgs):
            key = f"{request.pod_namespace}/{request.pod_name}"
        else:
            return
        at = self._clock.now()
        if outcome == FAILED:
            self._add(key, PastDecision(at, verb, f"failed: {error}"))
        elif outcome == PASSED:
            self._add(key, PastDecision(at, verb, "passed without being judged"))
        else:
            self._add(key, _decided(at, verb, request, result))

    def attempted(self, info: PodInfo, table: Table, decided: Chosen | Failure) -> None:  # noqa: ARG002  an observer's
        at = self._clock.now()
        if isinstance(decided, Chosen):
            self._add(info.pod.key, PastDecision(at, "attempt", f"chose {decided.node_name}", decided.node_name))
            return
        plan = decided.preemption
        victims = [victim.pod.key for victim in plan.victims[:_MOST_VICTIMS]] if plan else []
        nominated = f" nominated to {plan.node_name}" if plan else ""
        self._add(info.pod.key, PastDecision(at, "attempt", f"{decided.message}{nominated}", victims=victims))

    def group_attempted(self, table: Table, decision: GroupDecision, preemption: GroupPreemption) -> None:  # noqa: ARG002  an observer's
        """Remembers the outcome of a group's attempt for each of its members."""
        at = self._clock.now()
        for leaf in leaf_decisions(decision):
            for info in waiting_members(leaf.tree):
                member = leaf.members[info.uid]
                reason = member_failure(leaf, member, waits_for_victims=preemption.helps)
                node = "" if reason is not None else member.node_name or ""
                self._add(info.pod.key, PastDecision(at, "attempt", reason or f"chose {node}", node))

    def group_failed(self, table: Table, tree: Tree, message: str) -> None:  # noqa: ARG002  an observer's
        at = self._clock.now()
        for info in waiting_members(tree):
            self._add(info.pod.key, PastDecision(at, "attempt", message))

    def event_recorded(self, pod: Pod, kind: EventType, reason: str, note: str) -> None:  # noqa: ARG002  an observer's
        """Remembers an event of the loop, except an event that only repeats the message of a failed attempt."""
        if reason != "FailedScheduling" or not note.startswith(("0/", UNSCHEDULABLE_GROUP)):
            self._add(pod.key, PastDecision(self._clock.now(), "event", f"{reason}: {note}"))

    def about(self, key: str) -> list[PastDecision]:
        """Returns the decisions about the pod, the oldest first. Raises UnknownPod if there are none."""
        with self._lock:
            self._drop_old()
            decisions = [_DECODE(encoded) for encoded in self._pods.get(key, ())]
        if not decisions:
            raise UnknownPod(f"no decision about pod {key} is remembered: none was made, or it is too old")
        return decisions

    def last(self) -> Mapping[str, PastDecision]:
        """Returns the last decision about each pod, by NAMESPACE/NAME; the most recent decision comes last."""
        with self._lock:
            self._drop_old()
            return {key: _DECODE(decisions[-1]) for key, decisions in self._pods.items()}

    def page(self, query: Mapping[str, list[str]], _accept: str) -> Answer:
        """Answers `?pod=NAMESPACE/NAME` with all decisions about that pod.

        Without `pod`, answers with the last decision about each pod.
        """
        if not (pods := query.get("pod")):
            last = [{"pod": key, **msgspec.to_builtins(decision)} for key, decision in self.last().items()]
            return json_answer({"pods": last})
        try:
            return json_answer({"pod": pods[0], "decisions": self.about(pods[0])})
        except UnknownPod as error:
            return error_answer(404, str(error))

    def _add(self, key: str, decision: PastDecision) -> None:
        if len(key) > LONGEST_KEY:
            return
        if len(decision.outcome) > LONGEST_TEXT:
            decision = msgspec.structs.replace(decision, outcome=cut(decision.outcome, LONGEST_TEXT))
        encoded = _ENCODE(decision)
        with self._lock:
            decisions = self._pods.get(key)
            if decisions is None:
                decisions = self._pods[key] = []
                self._bytes += _POD_BYTES + len(key)
            self._pods.move_to_end(key)
            decisions.append(encoded)
            self._bytes += _DECISION_BYTES + len(encoded)
            if len(decisions) > _MOST_OF_A_POD:
                self._drop_oldest(decisions)
            while self._bytes > self._limit_bytes and self._pods:
                self._drop_pod(next(iter(self._pods)))

    def _drop_old(self) -> None:
        begin = self._clock.now() - self._age_seconds
        for key, decisions in list(self._pods.items()):
            while decisions and _DECODE(decisions[0]).at < begin:
                self._drop_oldest(decisions)
            if not decisions:
                self._drop_pod(key)

    def _drop_oldest(self, decisions: list[bytes]) -> None:
        self._bytes -= _DECISION_BYTES + len(decisions.pop(0))

    def _drop_pod(self, key: str) -> None:
        decisions = self._pods.pop(key)
        self._bytes -= _POD_BYTES + len(key) + _DECISION_BYTES * len(decisions) + sum(map(len, decisions))


def _decided(at: float, verb: str, request: object, result: object) -> PastDecision:
    match result:
        case ExtenderFilterResult():
            refused, final = result.failed_nodes, result.failed_and_unresolvable_nodes
            nodes = len(request.names) if isinstance(request, ExtenderArgs) else 0
            reasons = Counter((*refused.values(), *final.values())).most_common() if refused or final else ()
            outcome = result.error or f"{nodes - len(refused) - len(final)} of {nodes} nodes remain"
            if result.best:
                outcome = f"{outcome}, {result.best} is best"
            return PastDecision(at, verb, outcome, result.best, reasons=dict(reasons))
        case HostPriorityList() if result.hosts:
            best = int(result.scores.argmax())
            outcome = f"{result.hosts[best]} is the best of {len(result.hosts)} nodes, with score {result.scores[best]}"
            return PastDecision(at, verb, outcome, result.hosts[best])
        case ExtenderPreemptionResult(by_node):
            uids = [pod.uid for victims in by_node.values() for pod in victims.pods]
            return PastDecision(at, verb, f"{len(by_node)} candidates remain", victims=uids[:_MOST_VICTIMS])
        case ExtenderBindingResult() if isinstance(request, ExtenderBindingArgs):
            outcome = f"to {request.node}: {result.error}" if result.error else f"to {request.node}"
            return PastDecision(at, verb, outcome, "" if result.error else request.node)
        case _:
            return PastDecision(at, verb, "no nodes")
