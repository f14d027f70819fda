"""An extender in a process of its own: the whole application as app.serve makes it, called by WSGI."""

from __future__ import annotations

from collections import Counter
from io import BytesIO
from typing import Any

from extender.app import upkeep
from extender.app.feed import feed_factory_of
from extender.app.serve import application
from extender.config.settings import Settings
from extender.extender_v1.messages import decode_binding_args
from extender.runtime.unsettled import UnsettledWrites
from tests.simulation.judge import Judge
from tests.simulation.tasks import Process, Simulation
from tests.simulation.witness import WitnessedCache

FOLLOWED = ("Node", "Pod", "PodDisruptionBudget")
STORAGE = ("PersistentVolume", "PersistentVolumeClaim", "StorageClass")
DEVICES = ("DeviceClass", "ResourceClaim", "ResourceSlice")
PROBE_SECONDS = 4.0
CHECK_SECONDS = 0.7
COMPARE_SECONDS = (45.0, 300.0)  # the latter finds a silent watch later than a survey must


def settings(*, elects: bool, kinds: tuple[str, ...] = FOLLOWED, filter_answer: str = "feasible") -> Settings:
    """The options of a process; its defaults in all else."""
    return Settings.model_validate(
        {
            "watch_kinds": kinds,
            "leader_elect": elects,
            "lease_namespace": "default",
            "filter_answer": filter_answer,
        }
    )


class Replica:
    """One process of the extender.

    Attributes:
        ready: what its last readiness probe has said.
    """

    def __init__(
        self,
        simulation: Simulation,
        judge: Judge,
        process: Process,
        *,
        elects: bool,
        filter_answer: str,
        writes: UnsettledWrites | None = None,
    ) -> None:
        """`writes`: the memory of a worker that was killed, whose place this one takes."""
        self.writes = writes
        self.process, self._simulation, self._judge = process, simulation, judge
        self.ready = self._started = False
        self._binding: Counter[str] = Counter()
        self._settings = settings(elects=elects, filter_answer=filter_answer)
        self._compare_seconds = simulation.random.choice(COMPARE_SECONDS)
        process.facts["elects"] = elects
        simulation.spawn(process, f"{process.name} main", self._main)
        simulation.spawn(process, f"{process.name} check", self._check_now_and_then)

    @property
    def cache(self) -> WitnessedCache:
        cache: WitnessedCache = self.process.facts["cache"]
        return cache

    def answer(self, verb: str, body: bytes) -> bytes | None:
        """One call, in a thread of its own; None: a status that is not 200."""
        if not self._started:
            return None
        if verb == "bind":
            return self._bind(body)
        status, answer = self._request("POST", f"/scheduler/{verb}", body)
        return answer if status == 200 else None

    def stop(self) -> None:
        """SIGTERM."""
        self.ready = self._started = False
        self._app.lifecycle.stop()

    def _main(self) -> None:
        self.writes = self.writes or UnsettledWrites(self._settings.settle_seconds)
        upkeep.COMPARE_SECONDS = self._compare_seconds  # it is read while the application is made
        self._app = application(
            self._settings, feed_factory_of(self._settings, identity=self.process.name), self.writes
        )
        self._app.lifecycle.start()
        self._started = True
        while self._started:
            status, _ = self._request("GET", "/readyz", b"")
            self.ready = self._started and status == 200
            self._simulation.sleep(PROBE_SECONDS)

    def _check_now_and_then(self) -> None:
        while True:
            self._simulation.sleep(CHECK_SECONDS)
            if self._started:
                self._simulation.undisturbed(lambda: self.cache.check(lambda uid: self._binding[uid] > 0))
            if self.ready:
                self._simulation.undisturbed(self.cache.check_knowledge)

    def _bind(self, body: bytes) -> bytes | None:
        request = decode_binding_args(body)
        self._binding[request.pod_uid] += 1
        try:
            status, answer = self._request("POST", "/scheduler/bind", body)
        finally:
            self._binding[request.pod_uid] -= 1
        self._simulation.tell(f"{self.process.name}: bind of {request.pod_uid} to {request.node}: {answer.decode()}")
        if answer == b'{"Error":""}':
            self._judge.told_bound(self.process.name, request.pod_uid, request.node)
        return answer if status == 200 else None

    def _request(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        said: list[str] = []

        def start_response(status: str, *_: object) -> Any:
            said.append(status)

        environ: dict[str, Any] = {
            "REQUEST_METHOD": method,
            "PATH_INFO": path,
            "QUERY_STRING": "",
            "CONTENT_TYPE": "application/json",
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_HOST": "localhost:8888",
            "SERVER_NAME": "localhost",
            "SERVER_PORT": "8888",
            "wsgi.url_scheme": "http",
            "wsgi.input": BytesIO(body),
        }
        answer = b"".join(self._app(environ, start_response))
        return int(said[0].split()[0]), answer
