"""Checks with surveys that reflectors deliver every object and deletion. A survey lists only versions of objects.

A watch may fail without a sign: it stays open and silent, it loses one event and delivers the next, or it follows a
server that was restored from a backup. So a survey of every kind is made once a minute or more often, whether events
arrive or not. It lists metadata only: the UID and the version of every object at one moment. The request names no
resource version, so it is a quorum read. The survey is confirmed once the reflector has delivered each object in the
listed version or a newer one, and the deletion of every object that is not listed.

If a survey is not confirmed within `PATIENCE_SECONDS`, the watch is distrusted: the reflector lists everything again,
and the kind is not synced until then. In two cases, the watch is distrusted at once:

- The watch has not delivered what the survey shows about an object, but has delivered a later event. Events
  arrive in the order of their versions (KEP-5504), so the object's event is lost. Even a bookmark does not prove that
  all earlier events were delivered.
- The version of the list, or of an object in it, is lower than a version that the reflector has already seen. Then the
  API server was restored from a backup. The watch alone would not show this: if a watch begins at a version that the
  server has not reached yet, the server accepts the watch and stays silent.

So a cache can be wrong without knowing it for at most 110 s, however large the cluster is: `LONGEST_INTERVAL_SECONDS`,
plus 30 s for the list, plus `PATIENCE_SECONDS`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable

import msgspec

from extender.cluster.kube_client import KubeClient
from extender.cluster.watch.api_objects import Page, list_all, version_number
from extender.cluster.watch.reflector import Reflector
from extender.errors import ClusterError
from extender.model.pod import Pod
from extender.runtime.clock import Clock
from extender.runtime.ports import Telemetry
from extender.runtime.text import counted

logger = logging.getLogger(__name__)

PATIENCE_SECONDS = 20.0
SHORTEST_INTERVAL_SECONDS, LONGEST_INTERVAL_SECONDS = 20.0, 60.0
_OBJECTS_PER_SECOND = 200  # a kind with more objects is surveyed less often, to limit the cost
_METADATA_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
_PAGE_SIZE = 2000


class _Metadata(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    uid: str = ""
    resource_version: str = ""


class _ListedObject(msgspec.Struct, gc=False):
    metadata: _Metadata = _Metadata()


_DECODE = msgspec.json.Decoder(Page[_ListedObject]).decode


class Survey:
    """A list of the UIDs and versions of a kind's objects, to compare with what the reflector delivered.

    Implements cache.expiry.PodSurvey.

    Attributes:
        reflector: the reflector of the kind.
        asked_at: when the list was requested, in monotonic seconds. The list shows every write accepted before then.
    """

    def __init__(
        self,
        client: KubeClient,
        reflector: Reflector,
        clock: Clock,
        distrust: Callable[[str], object],
        restored: Callable[[str], object],
    ) -> None:
        """Lists the UIDs and versions of the objects.

        Args:
            distrust: called with a reason; makes the reflector list everything again.
            restored: called with a reason if the API server was restored from a backup; all kinds are then listed
                again.

        Raises:
            Refused, OutcomeUnknown: the list has failed.
        """
        self.reflector = reflector
        self._clock = clock
        self._distrust = distrust
        version_seen = reflector.version_seen
        self.asked_at = clock.monotonic()
        version, objects = list_all(client, reflector.kind, _DECODE, _PAGE_SIZE, _METADATA_ONLY)
        self._listed_at = clock.monotonic()
        self._version = version_number(version)
        self._versions = {obj.metadata.uid: obj.metadata.resource_version for obj in objects}
        self._unconfirmed = self._differing()
        if reason := self._sign_of_restoration(version_seen):
            restored(reason)

    def confirmed(self) -> bool:
        """Returns True if the sink has everything that this list shows; False while the reflector lists again.

        Distrusts the watch if the watch has lost events, or is more than `PATIENCE_SECONDS` late.
        """
        reflector = self.reflector
        if not reflector.state.synced or not reflector.state.version:
            return False
        if reflector.version_listed >= self._version or reflector.listed_as_of > self.asked_at:
            return True
        # Read before `delivered`, because the reflector updates `delivered` first.
        version_seen = reflector.version_seen
        self._unconfirmed = [uid for uid in self._unconfirmed if self._is_unconfirmed(uid)]
        lost = sum(self._awaited_version(uid) <= version_seen for uid in self._unconfirmed)
        if lost:
            self._distrust(f"the watch lost the events of {counted(lost, 'object')} and delivered later ones")
        elif self._unconfirmed and self._clock.monotonic() - self._listed_at >= PATIENCE_SECONDS:
            missing = f"{counted(len(self._unconfirmed), 'object')} of a list"
            self._distrust(f"the watch has not delivered {missing} within {PATIENCE_SECONDS:g} s")
        return not self._unconfirmed

    def shows_newer(self, uid: str, pod: Pod | None) -> bool:
        """Returns True if the list has a newer version of the pod than the cache; `pod` is the cached one or None."""
        return version_number(self._versions.get(uid, "")) > (
            version_number(pod.metadata.resource_version) if pod else 0
        )

    def _differing(self) -> list[str]:
        """Returns the UIDs of the objects that only the list or only the reflector has, or whose versions differ."""
        # `copy` is atomic, so the reflector's thread may change the original at the same time.
        delivered = self.reflector.delivered.copy()
        changed = [uid for uid, version in self._versions.items() if delivered.get(uid) != version]
        return changed + [uid for uid in delivered if uid not in self._versions]

    def _is_unconfirmed(self, uid: str) -> bool:
        version_seen = self._version_seen(uid)
        if version_seen > self._version:
            return False  # an event that is newer than the list has confirmed the object
        if uid not in self._versions:
            return uid in self.reflector.delivered
        return version_seen < self._awaited_version(uid)

    def _sign_of_restoration(self, version_seen: int) -> str | None:
        """Returns the evidence that the API server was restored from a backup; None if there is no evidence."""
        if self._version < version_seen:
            return f"a list has version {self._version}, but the watch had reached {version_seen}"
        if any(self._is_older(uid) for uid in self._unconfirmed):
            return f"the list of version {self._version} has an object in an older version than the watch delivered"
        return None

    def _is_older(self, uid: str) -> bool:
        return uid in self._versions and self._awaited_version(uid) < self._version_seen(uid) <= self._version

    def _version_seen(self, uid: str) -> int:
        """Returns the version in which the object was last delivered or deleted; 0 if the reflector has not seen it."""
        delivered = self.reflector.delivered.get(uid)
        if delivered is not None:
            return version_number(delivered)
        deletion = self.reflector.deletions.get(uid)
        return version_number(deletion.version) if deletion else 0

    def _awaited_version(self, uid: str) -> int:
        """Returns a version that the watch cannot reach without having delivered the object's event.

        For a listed object, this is the object's version in the list. An object that is not listed was deleted before
        the list was made, so the version of the list is returned.
        """
        return version_number(self._versions[uid]) if uid in self._versions else self._version


class Surveyor:
    """Decides when the versions of a kind's objects are listed, and compares each such list with the watch.

    Each list (a `Survey`) is compared again until the watch has delivered all of it, or until the reflector lists the
    kind again. One thread calls `survey_next`, which waits for the API server. Another thread calls `follow_up` every
    second.
    """

    def __init__(
        self,
        reflectors: Iterable[Reflector],
        ask: Callable[[Reflector], Survey],
        telemetry: Telemetry,
        clock: Clock,
    ) -> None:
        """Marks the first survey of every kind as due now.

        Args:
            ask: makes a survey of one reflector's kind; raises Refused or OutcomeUnknown.
        """
        self._reflectors = list(reflectors)
        self._ask = ask
        self._telemetry = telemetry
        self._clock = clock
        self._due_at = dict.fromkeys(self._reflectors, 0.0)
        self._hurried = set[Reflector]()
        self._lock = threading.Lock()
        self._unconfirmed_surveys: list[Survey] = []

    def survey(self, reflector: Reflector) -> Survey:
        """Lists the versions of all objects of the kind now, to compare them with what the watch delivered.

        Raises:
            Refused, OutcomeUnknown: the API server did not answer with a list.
        """
        self._hurried.discard(reflector)
        # A successful list sets a later time.
        self._due_at[reflector] = self._clock.monotonic() + SHORTEST_INTERVAL_SECONDS
        survey = self._ask(reflector)
        self._due_at[reflector] = survey.asked_at + interval_seconds(len(reflector.delivered))
        reflector.state.answered()
        with self._lock:
            self._unconfirmed_surveys.append(survey)
        return survey

    def hurry(self, reflector: Reflector) -> None:
        """Marks a survey of the kind as due: its watch was interrupted, and the next watch may be at another server."""
        self._hurried.add(reflector)

    def survey_next(self) -> bool:
        """Makes the survey that is most overdue; returns False if no survey is due."""
        now = self._clock.monotonic()
        due_at = {reflector: self._next_at(reflector) for reflector in self._reflectors if reflector.state.synced}
        reflector = min(due_at, key=due_at.__getitem__, default=None)
        if reflector is None or due_at[reflector] > now:
            return False
        try:
            self.survey(reflector)
        except ClusterError as error:
            logger.info("survey failed kind=%s reason=%r", reflector.kind.name, str(error))
        return True

    def follow_up(self) -> None:
        """Checks every unconfirmed survey once.

        If a survey is now confirmed, reports to the telemetry that the kind was up to date when the survey was
        requested.
        """
        with self._lock:
            surveys = self._unconfirmed_surveys
            self._unconfirmed_surveys = []
        waiting = [survey for survey in surveys if not self._is_over(survey)]
        with self._lock:
            self._unconfirmed_surveys += waiting

    def _is_over(self, survey: Survey) -> bool:
        state = survey.reflector.state
        if survey.confirmed():
            self._telemetry.synced(survey.reflector.kind.name, survey.asked_at)
            return True
        return not state.synced  # the reflector is listing the kind again, so the survey is not needed

    def _next_at(self, reflector: Reflector) -> float:
        """Returns when the kind is next listed for a survey. A full list by the reflector counts as a survey."""
        if reflector in self._hurried:
            return float("-inf")
        return max(self._due_at[reflector], reflector.listed_as_of + interval_seconds(len(reflector.delivered)))


def interval_seconds(objects: int) -> float:
    """Returns how long to wait between two surveys of a kind that has this many objects."""
    return min(max(objects / _OBJECTS_PER_SECOND, SHORTEST_INTERVAL_SECONDS), LONGEST_INTERVAL_SECONDS)
