"""Invariants that hold whatever happens; worked out from the API server's objects, not by the extender's own engine."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from tests.simulation.api_server import (
    CLAIMS,
    DEVICE_CLAIMS,
    FINISHED,
    NODES,
    PODS,
    SLICES,
    VOLUMES,
    Event,
    Json,
    shown,
)
from tests.simulation.tasks import Process, Simulation

# For how long a process may not know that an API server was restored.
UNKNOWING_SECONDS = 70.0
# For how long a cache may be wrong, and its process ready, because a watch delivers nothing or has lost an event; and
# for how long such a process may have stood still in this time.
BLIND_SECONDS, STANDSTILL_SECONDS = 110.0, 30.0
Amounts = Mapping[str, int]


@dataclass(frozen=True)
class Knowledge:
    """The versions that a cache knew when a place was taken: the versions that its watches were at."""

    nodes: int
    pods: int


@dataclass
class Judge:
    """Looks at every change and every Binding.

    What counts: that a node has room for all pods that extenders have bound to it, now, by the most that it has offered
    since the version that the one who binds knew of it. Pods placed past all extenders count from when it knew of them.
    A node that shrinks, or is filled by others, behind the extender's back is no fault of a process.

    Attributes:
        bound: UID -> node, of all Bindings ever accepted.
        disturbed: nodes shrink and go: then who has made others leave one may have to do so on another.
        at_peace: no watch is behind any more.
        collections: the API server's objects, by path and key.
        processes: those of replicas and schedulers.
        overfilled: called instead of raising, where a test expects it.
    """

    simulation: Simulation
    disturbed: bool = False
    tolerant: bool = False
    at_peace: bool = False
    overfilled: list[str] = field(default_factory=list)
    bound: dict[str, str] = field(default_factory=dict)
    known: dict[tuple[str, str], Knowledge] = field(default_factory=dict)
    _nodes: defaultdict[str, list[tuple[int, Json | None]]] = field(default_factory=lambda: defaultdict(list))
    _placed: dict[str, tuple[int, Json]] = field(default_factory=dict)
    evictions: dict[str, str] = field(default_factory=dict)
    collections: Callable[[], dict[str, dict[str, Json]]] = dict
    processes: Callable[[], Iterable[Process]] = tuple
    _changed: dict[tuple[str, str], Event] = field(default_factory=dict)
    _changed_at: dict[tuple[str, str], float] = field(default_factory=dict)
    _lenient_until: float = 0.0
    _silent_until: float = 0.0

    # ---- what happens at the API server

    def changed(self, event: Event) -> None:
        """See api_server.Judge."""
        if event.path in (NODES, PODS):
            reference = event.path, event.obj["metadata"]["uid"]
            self._changed[reference] = event
            self._changed_at[reference] = self.simulation.now
        if event.path == NODES:
            gone = event.type == "DELETED"
            self._nodes[event.obj["metadata"]["name"]].append((event.version, None if gone else event.obj))
        elif event.path == PODS:
            self._pod_changed(event)

    def binding(self, caller: Process, pod: Json, node: str) -> None:
        """See api_server.Judge."""
        uid, name = pod["metadata"]["uid"], pod["metadata"]["name"]
        self.simulation.tell(f"{caller.name}: {name} ({uid}) is bound to {node}")
        before = self.bound.get(uid)
        self.require(self.lenient or before is None, f"{uid} is bound twice, to {before} and to {node}")
        known = self.known.get((caller.name, uid))
        self.require(self.lenient or known is not None, f"{caller.name} binds {uid}, and has not assumed it")
        if known and (objection := self._objection(pod, node, known)):
            self.overfilled.append(objection)
            self.require(self.tolerant or self.lenient, objection)
        reached = self._reaches(pod, node, bound=True)
        self.require(self.lenient or reached, f"{name} is bound to {node}, where its volume is not")
        lacking = self._lacking_devices(pod, node, bound=True)
        self.require(self.lenient or not lacking, f"{name} is bound to {node}: {lacking}")
        self.bound[uid] = node

    def claiming(self, caller: Process, claim: Json) -> None:
        """See api_server.Judge. A device is one claim's at a time."""
        uid, held = claim["metadata"]["uid"], set(_devices(claim))
        for other in self.collections()[DEVICE_CLAIMS].values():
            both = held.intersection(_devices(other)) if other["metadata"]["uid"] != uid else ()
            self.require(
                self.lenient or not both, f"{caller.name} gives {both} to {uid} and {other['metadata']['uid']}"
            )

    def writing(self, caller: Process, call: str, holder: str) -> None:
        """See api_server.Judge. Whoever does not lead writes nothing once another does, and never do two lead."""
        leaders = [each.name for each in self.processes() if each.alive and each.facts.get("leads", bool)()]
        self.require(len(leaders) <= 1, f"{caller.name}: {call}, while {leaders} lead")
        other = caller.facts.get("elects") and holder not in ("", caller.name)
        self.require(self.tolerant or self.lenient or not other, f"{caller.name}: {call}, while {holder} leads")

    def status(self, caller: Process, pod: Json, patch: Json) -> None:
        """See api_server.Judge. Nobody says that a bound pod is not scheduled."""
        said = [each["type"] for each in patch.get("conditions", []) if each.get("status") == "False"]
        late = "PodScheduled" in said and "nodeName" in pod["spec"]
        self.require(
            self.lenient or not late,
            f"{caller.name} says that {pod['metadata']['name']} is not scheduled, and it is bound",
        )

    def restored(self, version: int, pods: Iterable[Json]) -> None:
        """The API server has forgotten all that came after `version`; for a while no process can know."""
        self._lenient_until = self.simulation.now + UNKNOWING_SECONDS
        held = [each for each in pods if each["spec"].get("nodeName") and shown(PODS, each)]
        self._placed = {each["metadata"]["uid"]: (version, each) for each in held}
        self.bound = {uid: node for uid, node in self.bound.items() if uid in self._placed}
        self.known.clear()
        self._changed.clear()
        for name, states in self._nodes.items():
            self._nodes[name] = [(at, state) for at, state in states if at <= version]

    def lost(self, follower: Process, path: str, line: bytes) -> None:
        """See api_server.Judge: for a while a cache may hold what is old, and its comparer may find that out.

        Later events no longer show that the follower knows this one, until it lists everything again.
        """
        self._silent_until = self.simulation.now + BLIND_SECONDS
        version = int(msgspec.json.decode(line)["object"]["metadata"]["resourceVersion"])
        follower.facts.setdefault("gaps", {}).setdefault(path, version)

    def require_knowledge(self, who: str, path: str, held: Mapping[str, str]) -> None:
        """Requires of a ready process that it holds whatever has not changed for long; `held`: versions by UID."""
        long_ago = self.simulation.now - BLIND_SECONDS - STANDSTILL_SECONDS
        for (of_path, uid), event in self._changed.items():
            if of_path != path or self._changed_at[of_path, uid] > long_ago:
                continue
            gone = event.type == "DELETED" or not shown(path, event.obj)
            version = None if gone else event.obj["metadata"]["resourceVersion"]
            self.require(
                self.lenient or held.get(uid) == version,
                f"{who} is ready, and has {uid} in version {held.get(uid)}, not {version}, for {BLIND_SECONDS:g} s",
            )

    @property
    def silent(self) -> bool:
        """A watch has delivered no events, a moment ago."""
        return self.simulation.now < self._silent_until

    @property
    def unknowing_seconds(self) -> float:
        """For how long yet a process may not know what has happened."""
        return max(self._lenient_until, self._silent_until) - self.simulation.now

    @property
    def lenient(self) -> bool:
        """The API server was restored a moment ago."""
        return self.simulation.now < self._lenient_until

    def told_bound(self, who: str, uid: str, node: str) -> None:
        """An extender has answered that the pod is bound there."""
        bound = self.bound.get(uid)
        self.require(self.lenient or bound == node, f"{who} says that {uid} is bound to {node}: {bound}")

    def require(self, holds: bool, otherwise: str) -> None:
        if not holds:
            self.simulation.fail(otherwise)

    # ---- at the end

    def fits(self, pod: Json, node: Json) -> bool:
        """Returns whether the pod could stand on the node now, as the truth is."""
        if node["spec"].get("unschedulable"):
            return False
        others = self._on(node["metadata"]["name"], since=None)
        return (
            not _lack(pod, others, [node])
            and not _repelled(pod, others)
            and self._evenly(pod, node)
            and self._reaches(pod, node["metadata"]["name"])
            and not self._lacking_devices(pod, node["metadata"]["name"])
        )

    def kept_for_nobody(self, waiting: Iterable[Json]) -> list[str]:
        """Returns the device claims that are reserved for pods which wait."""
        uids = {pod["metadata"]["uid"] for pod in waiting}
        return [
            claim["metadata"]["name"]
            for claim in self.collections()[DEVICE_CLAIMS].values()
            if uids.intersection(_users(claim))
        ]

    def _evenly(self, pod: Json, node: Json) -> bool:
        """Whether the pod's spread constraints, over nodes and with a skew of one, let it onto the node."""
        nodes = [name for name, states in self._nodes.items() if states and states[-1][1] is not None]
        for constraint in pod["spec"].get("topologySpreadConstraints", []):
            count = {
                name: sum(_selects(constraint["labelSelector"], each) for each in self._staying_on(name))
                for name in nodes
            }
            if count[node["metadata"]["name"]] + 1 - min(count.values()) > constraint["maxSkew"]:
                return False
        return True

    def _reaches(self, pod: Json, node: str, *, bound: bool = False) -> bool:
        """Whether the pod's claim is bound to a volume of the node, or may be."""
        claims, volumes = self.collections()[CLAIMS], self.collections()[VOLUMES].values()
        for used in pod["spec"].get("volumes", []):
            claim = claims.get(f"default/{used['persistentVolumeClaim']['claimName']}")
            if claim is None:
                return False
            own = [
                each for each in volumes if (each["spec"].get("claimRef") or {}).get("uid") == claim["metadata"]["uid"]
            ]
            may = own or [each for each in volumes if not each["spec"].get("claimRef") and not bound]
            if not any(_is_on(each, node) for each in may):
                return False
        return True

    def _lacking_devices(self, pod: Json, node: str, *, bound: bool = False) -> str:
        """Returns which of the pod's device claims has no device of the node, nor may have; "" for none."""
        claims, slices = self.collections()[DEVICE_CLAIMS], self.collections()[SLICES].values()
        taken = {device for claim in claims.values() for device in _devices(claim)}
        here = [each["spec"] for each in slices if each["spec"]["nodeName"] == node]
        offered = {(node, device["name"]) for spec in here for device in spec["devices"]}
        for used in pod["spec"].get("resourceClaims", []):
            claim = claims.get(f"default/{used['resourceClaimName']}")
            own = set(_devices(claim)) if claim else set()
            if claim is None or (bound and pod["metadata"]["uid"] not in _users(claim)):
                return f"claim {used['resourceClaimName']} is not reserved for it"
            if not (own <= offered if own else not bound and offered - taken):
                return f"claim {used['resourceClaimName']} has no device there"
        return ""

    def _staying_on(self, node: str) -> list[Json]:
        return [pod for pod in self._on(node, since=None) if "deletionTimestamp" not in pod["metadata"]]

    def _pod_changed(self, event: Event) -> None:
        uid = event.obj["metadata"]["uid"]
        gone = event.type == "DELETED" or event.obj.get("status", {}).get("phase") in FINISHED
        if gone:
            self._placed.pop(uid, None)
        elif event.obj["spec"].get("nodeName"):
            version, _ = self._placed.get(uid, (event.version, None))
            self._placed[uid] = version, event.obj

    def _objection(self, pod: Json, node: str, known: Knowledge) -> str:
        states = self._nodes.get(node, [])
        before = [state for version, state in states if version <= known.nodes][-1:]
        offers = [state for state in before + [state for version, state in states if version > known.nodes] if state]
        if not offers:
            return f"{node} was known to be gone"
        if all(offer["spec"].get("unschedulable") for offer in offers):
            return f"{node} was known to be cordoned"
        if repelled := _repelled(pod, self._on(node, known.pods)):
            return f"{pod['metadata']['name']} must not stand on {node} with {repelled}"
        lack = _lack(pod, self._on(node, known.pods), offers)
        return f"{node} has no room for {pod['metadata']['name']}: {lack}" if lack else ""

    def _on(self, node: str, since: int | None) -> list[Json]:
        """The pods there; those placed past all extenders only if it was before the version `since`."""
        on = [(version, pod) for version, pod in self._placed.values() if pod["spec"]["nodeName"] == node]
        return [pod for version, pod in on if since is None or version <= since or pod["metadata"]["uid"] in self.bound]


def demand(pod: Json) -> Amounts:
    """cpu in milli, memory in Mi, and the pod itself."""
    requests = pod["spec"]["containers"][0].get("resources", {}).get("requests", {})
    return {**_amounts(requests), "pods": 1}


def ports(pod: Json) -> set[int]:
    """The node's ports that the pod takes."""
    return {port["hostPort"] for port in pod["spec"]["containers"][0].get("ports", [])}


def _is_on(volume: Json, node: str) -> bool:
    [term] = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    return bool(term["matchExpressions"][0]["values"] == [node])


def _devices(claim: Json) -> list[tuple[str, str]]:
    """The pool, which is a node, and the name of each device that the claim holds."""
    allocation = claim.get("status", {}).get("allocation") or {"devices": {"results": []}}
    return [(each["pool"], each["device"]) for each in allocation["devices"]["results"]]


def _users(claim: Json) -> list[str]:
    return [each["uid"] for each in claim.get("status", {}).get("reservedFor") or []]


def _repelled(pod: Json, others: Iterable[Json]) -> list[str]:
    """The names of the pods that it must not share a node with, by its own terms or by theirs."""
    return [each["metadata"]["name"] for each in others if _repels(pod, each) or _repels(each, pod)]


def _repels(pod: Json, other: Json) -> bool:
    anti = pod["spec"].get("affinity", {}).get("podAntiAffinity", {})
    terms = anti.get("requiredDuringSchedulingIgnoredDuringExecution", [])
    return any(_selects(term["labelSelector"], other) for term in terms)


def _selects(selector: Json, pod: Json) -> bool:
    labels = pod["metadata"].get("labels", {})
    return all(labels.get(key) == value for key, value in selector["matchLabels"].items())


def _lack(pod: Json, others: Iterable[Json], offers: list[Json]) -> str:
    together = [pod, *others]
    for name, offered in _most(offers).items():
        wanted = sum(demand(each).get(name, 0) for each in together)
        if wanted > offered:
            return f"{wanted} of {offered} {name} with {len(together) - 1} others"
    taken = ports(pod).intersection(*[set[int]().union(*(ports(each) for each in others))])
    return f"port {taken} is taken" if taken else ""


def _most(offers: list[Json]) -> Amounts:
    each = [_amounts(offer["status"]["allocatable"]) for offer in offers]
    return {name: max(amounts[name] for amounts in each) for name in ("cpu", "memory", "pods")}


def _amounts(quantities: Mapping[str, str]) -> dict[str, int]:
    """The few forms that are used here: 250m, 512Mi, 10."""
    return {name: int(text.removesuffix("m").removesuffix("Mi")) for name, text in quantities.items()}
