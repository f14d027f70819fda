"""Two devices on every node, claims for them that pods may share, and the controller that gives devices back."""

from __future__ import annotations

from random import Random

from tests.builders import make_device_class, make_resource_claim, make_resource_slice
from tests.simulation.api_server import DEVICE_CLAIMS, DEVICE_CLASSES, FINISHED, SLICES, ApiServer, Json
from tests.simulation.tasks import Simulation

CLASS, DRIVER = "gpu", "gpu.example.com"
NODES, DEVICES_ON_A_NODE = 8, 2
SHARED_SHARE = 0.25
LONGEST_PAUSE_SECONDS = 3.0


class Devices:
    """Reconciles now and then: a claim lives as long as any pod that names it, and is reserved for the living only."""

    def __init__(self, simulation: Simulation, api: ApiServer) -> None:
        self._simulation, self._api = simulation, api
        self._random = Random(simulation.random.random())
        api.put(DEVICE_CLASSES, make_device_class(CLASS))
        for number in range(NODES):
            names = [f"gpu{index}" for index in range(DEVICES_ON_A_NODE)]
            api.put(SLICES, make_resource_slice(f"n{number}", DRIVER, *names))
        self._act()

    def claim_for(self, pod_uid: str) -> str:
        """Makes a claim for the pod, or takes another's; returns its name."""
        claims = list(self._api.collections[DEVICE_CLAIMS].values())
        if claims and self._random.random() < SHARED_SHARE:
            return str(self._random.choice(claims)["metadata"]["name"])
        claim = make_resource_claim(f"devices-{pod_uid}", CLASS)
        self._api.put(DEVICE_CLAIMS, {**claim, "metadata": {**claim["metadata"], "uid": f"devices-{pod_uid}"}})
        return f"devices-{pod_uid}"

    def _act(self) -> None:
        living = [pod for pod in self._api.pods() if pod.get("status", {}).get("phase") not in FINISHED]
        uids = {pod["metadata"]["uid"] for pod in living}
        named = {each["resourceClaimName"] for pod in living for each in pod["spec"].get("resourceClaims", [])}
        for key, claim in list(self._api.collections[DEVICE_CLAIMS].items()):
            if claim["metadata"]["name"] not in named:
                self._api.remove(DEVICE_CLAIMS, key)
            else:
                self._reconcile(claim, uids)
        self._simulation.after(self._random.uniform(0.1, LONGEST_PAUSE_SECONDS), self._act)

    def _reconcile(self, claim: Json, living: set[str]) -> None:
        users = claim.get("status", {}).get("reservedFor") or []
        staying = [each for each in users if each["uid"] in living]
        if users != staying:
            status = {**claim["status"], "reservedFor": staying} if staying else {}
            self._api.put(DEVICE_CLAIMS, {**claim, "status": status})
