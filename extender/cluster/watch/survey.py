"""A list against which it is seen that a reflector has told of all that the API server held at one moment.

The moment's list is asked for without a resource version, which makes it a quorum read, and only for metadata. Events
of a kind come in the order of their versions, which are comparable (KEP-5504), so a reflector that has told of the
list's newest object has told of every object in it. It may still have to hear of deletions: till then the cache takes a
node for fuller than it is, which is the safe side.

A list also shows where a reflector is led astray, and has it distrusted, so that it lists anew:
- The list's version is below one that the reflector has seen, or the newest object that it told of has an older one in
  the list, or none and no deletion comes: the API server was restored from a copy, or what the reflector was told is no
  version of this server. A watch from the future would be accepted, and be silent.
- The reflector has seen a bookmark as new as one of the objects, but neither it nor a newer one: events are lost.

Bookmarks do not tell. They may pass while events are lost on the way, or come of a server that knows nothing of what
the reflector has seen, because it was restored from a copy.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from extender.cluster.http.kube_client import KubeClient
from extender.cluster.watch.decoding import Page, version_number
from extender.cluster.watch.paging import list_all
from extender.cluster.watch.reflector import Reflector
from extender.model.pod import Pod

_METADATA_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
_PAGE_SIZE = 2000
QUIET_SECONDS = 20.0
PATIENCE_SECONDS = 20.0  # how long a watch may take to tell of an object that a list shows
_LISTED_PER_SECOND = 200  # a kind of many objects is listed more rarely
_LONGEST_SECONDS = 300.0


class _Metadata(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    uid: str = ""
    resource_version: str = ""


class _Versioned(msgspec.Struct, gc=False):
    metadata: _Metadata = _Metadata()


_DECODE = msgspec.json.Decoder(Page[_Versioned]).decode


class Survey:
    """The objects of a reflector's kind at one moment; a cache.expiry.Survey of pods."""

    def __init__(
        self,
        client: KubeClient,
        reflector: Reflector,
        distrust: Callable[[str], object],
        restored: Callable[[str], object],
    ) -> None:
        """Lists the objects.

        Args:
            distrust: told why, has the reflector list anew.
            restored: told why the server must be another than it was: no kind can be trusted then.

        Raises:
            Refused, OutcomeUnknown: the list cannot be had.
        """
        seen, last = reflector.version_seen, reflector.newest
        self._reflector, self._distrust = reflector, distrust
        version, items = list_all(client, reflector.kind, _DECODE, _PAGE_SIZE, _METADATA_ONLY)
        self._version = version_number(version)
        self._versions = {each.metadata.uid: version_number(each.metadata.resource_version) for each in items}
        self._newest = max(self._versions.values(), default=0)
        listed = self._versions.get(last.uid)
        self._gone = last if listed is None and not last.gone else None
        if self._version < seen:
            restored(f"the list has version {version}, and the watch told of {seen}")
        elif listed is not None and listed < last.version:
            restored(f"the list has version {listed} of an object that the watch told of in version {last.version}")

    def __len__(self) -> int:
        return len(self._versions)

    @property
    def lists_newest(self) -> bool:
        """Returns whether the list has the newest object that the sink was told of, unless as deleted."""
        return self._gone is None or not self._gone.uid

    def told(self) -> bool:
        """Returns whether the sink was told of every object in the list; no reflector is asked while it lists."""
        if not self._reflector.state.synced or not self._reflector.state.version:
            return False
        if self._reflector.version_listed >= self._version:
            return True  # objects of this list that are not in that one are gone by now, and no event tells of them
        if self._gone == self._reflector.newest and self._gone.uid:
            return False  # its deletion is still to be told
        seen, told = self._reflector.version_seen, self._reflector.newest.version  # in this order: events come first
        if told >= self._newest:
            return True
        passed_over = max((version for version in self._versions.values() if version <= seen), default=0)
        if passed_over > told:
            self._distrust(f"the watch is past version {passed_over}, and has told of no object in it")
        return False

    def missed(self, uid: str, told: Pod | None) -> bool:
        """Returns whether the list has another pod of this UID than `told`; what a list has not told is distrusted."""
        listed = self._versions.get(uid, 0)
        missed = listed > (version_number(told.metadata.resource_version) if told else 0)
        if missed and listed > self._reflector.version_listed:
            self._distrust(f"the watch has not told of the pod with UID {uid} in version {listed}")
        return missed


class Verification:
    """Call `failed` every second or so; `survey` lists a kind."""

    def __init__(self, reflector: Reflector, survey: Callable[[str], Survey]) -> None:
        self.reflector, self._ask = reflector, survey
        self._survey: Survey | None = None
        self._asked_at, self._told = 0.0, reflector.newest
        self._verified_at, self._every_seconds = 0.0, QUIET_SECONDS

    def failed(self, now: float) -> str:
        """Returns why the reflector must list anew; "" as long as nobody knows. `now` in monotonic seconds.

        Raises:
            ClusterError: there is no list to be had; asked again later.
        """
        reflector = self.reflector
        if not reflector.state.synced:
            self._survey = None
        elif self._survey is None:
            if now - max(reflector.told_at, self._verified_at) >= self._every_seconds:
                self._begin(now)
        elif self._survey.told():
            self._survey = None
        elif reflector.newest != self._told:
            self._asked_at, self._told = now, reflector.newest  # it is behind, and goes on
        elif reflector.state.synced and now - self._asked_at >= PATIENCE_SECONDS:
            return f"a list shows something new, and the watch has told of nothing for {now - reflector.told_at:.0f} s"
        return ""

    def _begin(self, now: float) -> None:
        self._asked_at = self._verified_at = now
        self._told = self.reflector.newest
        self._survey = self._ask(self.reflector.kind.name)
        self.reflector.state.answered()
        self._every_seconds = min(max(QUIET_SECONDS, len(self._survey) / _LISTED_PER_SECOND), _LONGEST_SECONDS)
