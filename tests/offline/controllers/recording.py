"""The recorded pods of kube-controller-manager; `python -m tests.offline.controllers.recording` records them again."""

from __future__ import annotations

import gzip
import json
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.builders import Object
from tests.offline.controllers import world
from tests.offline.controllers.comparing import theirs
from tests.stock.api_client import ApiClient
from tests.stock.build import MARKERS, build
from tests.stock.control_plane import ControlPlane

FILE = Path(__file__).parent / "recorded.json.gz"
_CONTROLLERS = (
    "deployment-controller",
    "replicaset-controller",
    "replicationcontroller-controller",
    "statefulset-controller",
    "daemonset-controller",
    "job-controller",
    "cronjob-controller",
    "ephemeral-volume-controller",
)
_QUIET_SECONDS, _MOST_SECONDS = 10, 180
_READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}


def recorded() -> list[Object]:
    """Returns {"object", "pods", "claims"} of each workload."""
    cases: list[Object] = json.loads(gzip.decompress(FILE.read_bytes()))
    return cases


def _settled(client: ApiClient) -> None:
    """Makes every pod ready, for a StatefulSet waits for that, until no more come; CronJobs need a minute."""
    started = changed = time.monotonic()
    ready: set[str] = set()
    while time.monotonic() < max(changed + _QUIET_SECONDS, started + 65) and time.monotonic() < started + _MOST_SECONDS:
        for pod in client.list("Pod"):
            metadata = pod["metadata"]
            if metadata["uid"] not in ready:
                client.patch(
                    "Pod", metadata["name"], {"status": _READY}, namespace=metadata["namespace"], subresource="status"
                )
                ready.add(metadata["uid"])
                changed = time.monotonic()
        time.sleep(0.2)


def _first_job(pods: list[Object]) -> list[Object]:
    """Returns the pods of the oldest owner alone: a CronJob makes more Jobs every minute."""
    if not pods:
        return []
    oldest = min(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"]))["metadata"]["ownerReferences"][0][
        "uid"
    ]
    return [pod for pod in pods if pod["metadata"]["ownerReferences"][0]["uid"] == oldest]


def main() -> None:
    objects = world.workloads()
    binaries = build(on_request=MARKERS["controllers"])
    with TemporaryDirectory() as directory, ControlPlane(binaries, Path(directory)) as plane:
        client = plane.client
        client.create(*world.nodes(), *world.namespaces(objects))
        with plane.controllers(*_CONTROLLERS):
            client.create(*objects)
            _settled(client)
        cases = []
        for obj in objects:
            namespace = obj["metadata"]["namespace"]
            pods = _first_job(client.list("Pod", namespace)) if "Cron" in obj["kind"] else client.list("Pod", namespace)
            cases.append({"object": obj, **theirs(obj, pods, client.list("PersistentVolumeClaim", namespace))})
    FILE.write_bytes(gzip.compress(json.dumps(cases, sort_keys=True).encode(), mtime=0))


if __name__ == "__main__":
    main()
