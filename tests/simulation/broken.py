"""Parts with one fault each: a simulation that does not notice them is worth nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from extender.cache.cache import NodeCheck
from extender.cache.changes import POD
from extender.cluster.election.lease import Fence, LeaderClient
from extender.cluster.kube_client import ApiCall, Caller
from extender.cluster.statuses import ApiStatuses
from extender.engine.decision import Chosen
from extender.framework.profile import Profile
from extender.framework.status import Refusal
from extender.model.meta import Object
from extender.model.pod import Pod
from extender.runtime.clock import Deadline
from extender.runtime.ports import LONG_AGO, Annotations, Binder
from extender.scheduler.reservations import ClaimReservation, DeviceClaims, VolumeReservation, Volumes
from extender.table import PodInfo
from extender.verbs.bind import Bind
from tests.simulation.network import Weather
from tests.simulation.witness import WitnessedCache
from tests.simulation.world import Plan


class UncheckedBind(Bind):
    """Assumes a pod without checking that it still fits."""

    def _assume(self, info: PodInfo, profile: Profile, node: str, deadline: Deadline) -> Refusal | None:
        return self._cache.assume(info, node)


class ForgetfulBind(Bind):
    """Does not give the place back where the API server refuses."""

    def _forget(self, uid: str) -> None:
        pass


class HastyBind(Bind):
    """Takes an answer that never came for a refusal."""

    def _finish(self, uid: str, *, certain: bool) -> None:
        super()._finish(uid, certain=certain)
        if not certain:
            self._forget(uid)


class OpenDoor:
    """A LeaderBinder that lets everybody pass."""

    def __init__(self, binder: Binder, *_: object) -> None:
        self.bind = lambda binding, _check=None: binder.bind(binding)


class UnassumingCache(WitnessedCache):
    """Counts no pod before the watch delivers it."""

    def assume(
        self, info: PodInfo, node_name: str, check: NodeCheck | None = None, annotations: Annotations = ()
    ) -> Refusal | None:
        refusal = super().assume(info, node_name, check, annotations)
        if refusal is None:
            self.forget(info.uid)
        return refusal


class AddingCache(WitnessedCache):
    """Takes a list for so many changes: what is not in it stays."""

    def replaced(self, kind: str, objects: Sequence[Object], asked_at: float = LONG_AGO) -> None:
        for obj in objects:
            self.changed(kind, obj)


class DeafCache(WitnessedCache):
    """Does not hear of one pod in three that goes."""

    def deleted(self, kind: str, obj: Object) -> None:
        if kind != POD or int(obj.metadata.resource_version) % 3:
            super().deleted(kind, obj)


class TardyStatuses(ApiStatuses):
    """Writes that a pod is not scheduled, though it is being bound by now."""

    def withdraw(self, pod: Pod) -> None:
        pass


class HastyVolumes(Volumes):
    """Does not wait until a pod's volumes are bound, nor write that they are to be."""

    def reserve(self, pod: PodInfo, chosen: Chosen) -> VolumeReservation | None:
        return None


class GivenAwayDevices(DeviceClaims):
    """Writes no claims: no process knows which claim has which device."""

    def reserve(self, pod: PodInfo, chosen: Chosen) -> ClaimReservation | None:
        return None


class OpenClient(LeaderClient):
    """A LeaderClient that asks before events only, and lets everybody write all else."""

    def __init__(self, client: Caller, fence: Fence) -> None:
        super().__init__(client, fence)
        self._open = client

    def call(self, call: ApiCall) -> bytes:
        if "/events" in call.path:
            return super().call(call)
        return self._open.call(call)


def at_once(*_: Any) -> bool:
    """In the place of Survey.confirmed: takes the cache for new whatever it holds."""
    return True


def nothing(*_: Any) -> None:
    """In the place of Surveyor.follow_up: what becomes of a survey is looked at by its caller only, if at all."""


# Where answers are lost more often than not, what is made of that is soon seen.
SILENT = Weather(answer_lost=0.3, lost=0.1)


def without(path: str, part: object, weather: Weather | None = None, *, crashes: bool = True) -> Plan:
    """A life in which `part` is in the place of the right one."""
    own = path.startswith(("extender.app.schedule.", "extender.app.loop.", "extender.app.loop."))
    return Plan(stand_ins={path: part}, weather=weather or Weather(), own_scheduler=own, crashes=crashes)


BROKEN: Mapping[str, Plan] = {
    "the node is not checked again in bind": without("extender.app.serve.Bind", UncheckedBind),
    "a refused bind keeps its place": without("extender.app.serve.Bind", ForgetfulBind),
    "no answer is taken for no": without("extender.app.serve.Bind", HastyBind, SILENT, crashes=False),
    "a new leader does not catch up": without("extender.cluster.watch.survey.Survey.confirmed", at_once),
    "surveys are not followed up": without("extender.cluster.watch.survey.Surveyor.follow_up", nothing),
    "pods are not assumed": without("extender.app.upkeep.Cache", UnassumingCache),
    "a list does not take away": without("extender.app.upkeep.Cache", AddingCache, SILENT),
    "a status is written after the bind": without("extender.app.loop.ApiStatuses", TardyStatuses),
    "volumes are not awaited": without("extender.app.loop.Volumes", HastyVolumes),
    "devices are not reserved": without("extender.app.loop.DeviceClaims", GivenAwayDevices),
    "some deletions are not heard": without("extender.app.upkeep.Cache", DeafCache, SILENT, crashes=False),
}
