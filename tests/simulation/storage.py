"""Local volumes on every node, and the controllers that bind claims to them and take volumes back."""

from __future__ import annotations

from tests.builders import HOSTNAME, expression, make_pv, make_pvc, make_storage_class, node_term
from tests.simulation.api_server import CLAIMS, CLASSES, VOLUMES, ApiServer, Json
from tests.simulation.tasks import Simulation

CLASS = "local"
NODES, VOLUMES_ON_A_NODE = 8, 2
LONGEST_PAUSE_SECONDS = 3.0
BOUND = {"pv.kubernetes.io/bind-completed": "yes"}


class Storage:
    """Reconciles now and then: a claim lives as long as the pod that it was made for."""

    def __init__(self, simulation: Simulation, api: ApiServer) -> None:
        self._simulation, self._api = simulation, api
        api.put(CLASSES, make_storage_class(CLASS, provisioner="kubernetes.io/no-provisioner"))
        for number in range(NODES * VOLUMES_ON_A_NODE):
            here = [node_term(expression(HOSTNAME, "In", f"n{number % NODES}"))]
            api.put(
                VOLUMES, make_pv(f"v{number}", storage_class=CLASS, source={"local": {"path": "/"}}, node_terms=here)
            )
        self._act()

    def claim_for(self, pod_uid: str) -> str:
        """Makes a claim for the pod; returns its name."""
        claim = make_pvc(f"claim-{pod_uid}", storage_class=CLASS)
        self._api.put(CLAIMS, {**claim, "metadata": {**claim["metadata"], "uid": f"claim-{pod_uid}"}})
        return f"claim-{pod_uid}"

    def _act(self) -> None:
        living = {f"claim-{pod['metadata']['uid']}" for pod in self._api.pods()}
        for key, claim in list(self._api.collections[CLAIMS].items()):
            if claim["metadata"]["uid"] not in living:
                self._api.remove(CLAIMS, key)
        for volume in list(self._api.collections[VOLUMES].values()):
            if reference := volume["spec"].get("claimRef"):
                self._reconcile(volume, reference)
        self._simulation.after(self._simulation.random.uniform(0.1, LONGEST_PAUSE_SECONDS), self._act)

    def _reconcile(self, volume: Json, reference: Json) -> None:
        claim = self._api.collections[CLAIMS].get(f"{reference['namespace']}/{reference['name']}")
        name = volume["metadata"]["name"]
        if claim is None or claim["spec"].get("volumeName", name) != name:
            self._api.put(VOLUMES, {**volume, "spec": {**volume["spec"], "claimRef": None}})
        elif "volumeName" not in claim["spec"]:
            metadata = {**claim["metadata"], "annotations": {**claim["metadata"].get("annotations", {}), **BOUND}}
            self._api.put(CLAIMS, {**claim, "metadata": metadata, "spec": {**claim["spec"], "volumeName": name}})
