"""Random clusters with little room: those of `tests.conformance`, made tighter, with what only the answers look at."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.answers.oddities import ODDITIES, by_hand
from tests.builders import HOSTNAME, NodeBuilder, Object, PodBuilder, make_pod
from tests.conformance.draft import Dice, Draft, draft
from tests.conformance.features import FEATURES, configuration
from tests.conformance.uniform import examples

GPU = "example.com/gpu"
CHUNK = 50
"""So many clusters are drawn at once; cluster N of a seed is the same however many are asked for."""


@st.composite
def clusters(draw: st.DrawFn) -> Object:
    """A cluster and one of its pending pods, in the form of the conformance cases.

    `odd` lists what the stock oracle cannot judge.
    """
    dice = Dice(draw)
    drafted = draft(dice)
    features = dice.some(list(FEATURES), 0, 3)
    for name in sorted(features, key=list(FEATURES).index):
        FEATURES[name](dice, drafted)
    if dice.chance(70):
        _tighten(dice, drafted)
    if dice.chance(60):
        _select(dice, drafted)
    if dice.chance(25):
        _own(dice, drafted)
    if dice.chance(25):
        _wait(dice, drafted)
    if dice.chance(20):
        configuration.add(dice, drafted)
    odd = dice.some(list(ODDITIES), 1, 2) if dice.chance(50) else []
    for name in odd:
        ODDITIES[name](dice, drafted)
    case = drafted.case("cluster")
    if dice.chance(20):
        odd, case = [*odd, "by-hand"], by_hand(case)
    return {**case, "odd": odd}


def drawn(first_seed: int, chunk: int) -> list[Object]:
    """Returns one chunk of the clusters of a seed, named `SEED/NUMBER`."""
    cases = examples(clusters(), CHUNK, f"answers {first_seed} {chunk}")
    return [{**case, "name": f"{first_seed}/{chunk * CHUNK + number}"} for number, case in enumerate(cases)]


def _tighten(dice: Dice, draft: Draft) -> None:
    """Few nodes can take the target: they are small, tainted or cordoned, and the target asks for much."""
    for node in draft.nodes:
        _shrink(dice, node)
    draft.target.req(cpu=dice.one("500m", "1", "3", "8"), memory=dice.one("256Mi", "1Gi", "3Gi", "20Gi"))
    if dice.chance(25):
        amount = dice.one("1", "3", "8")
        draft.target.req({GPU: amount}).limit({GPU: amount})
    if dice.chance(20):
        draft.target.container(cpu=dice.one("100m", "2"))
    if dice.chance(10):
        draft.target.overhead(cpu="250m", memory="128Mi")
    if dice.chance(10):
        draft.target.pod_level_req(cpu="4", memory="24Gi")


def _shrink(dice: Dice, node: NodeBuilder) -> None:
    if dice.chance(80):
        node.allocatable(cpu=dice.one("500m", "1", "2", "4"), memory=dice.one("1Gi", "2Gi", "8Gi"))
        node.allocatable(pods=dice.one("2", "4", "110"))
    if dice.chance(30):
        node.allocatable({GPU: dice.one("1", "2", "4")})
    if dice.chance(15):
        node.unschedulable()
    if dice.chance(25):
        node.taint(dice.one("dedicated", "team", "node.kubernetes.io/not-ready"), dice.one("a", "b"))
    if dice.chance(30):
        node.label({HOSTNAME: node.obj()["metadata"]["name"]})


def _select(dice: Dice, draft: Draft) -> None:
    """The target names labels that few or no nodes have."""
    for key, values in (("disktype", ("ssd", "hdd", "nvme")), ("rank", ("1", "9")), ("pool", ("a",))):
        if dice.chance(35):
            draft.target.node_selector({key: dice.one(*values)})


def _own(dice: Dice, draft: Draft) -> None:
    """Some pods on nodes are a DaemonSet's; preemption may evict them, but removing them helps no pod."""
    for pod in draft.pods:
        if dice.chance(30) and pod.obj()["spec"].get("nodeName"):
            pod.owner(dice.one("DaemonSet", "ReplicaSet", "Job"), "owner")


def _wait(dice: Dice, draft: Draft) -> None:
    """Other pods are pending too: nominated, gated, of another scheduler, or like any other."""
    for number in range(dice.count(1, 3)):
        pod = make_pod(f"w{number}").scheduler("default-scheduler").label(app=dice.one("web", "db"))
        pod.req(cpu=dice.one("250m", "1", "2"), memory="128Mi").priority(dice.one(-5, 0, 0, 50, 3000))
        draft.pods.append(_waiting(dice, draft, pod))


def _waiting(dice: Dice, draft: Draft, pod: PodBuilder) -> PodBuilder:
    match dice.count(0, 5):
        case 0 | 1:
            return pod.nominated(dice.one(*draft.node_names))
        case 2:
            return pod.gate("example.com/wait")
        case 3:
            return pod.scheduler("another")
        case _:
            return pod
