"""Makes extender/offline/manifests/fields.json from the kubernetes client.

python -m tests.offline.manifests.api_fields > FILE
"""

from __future__ import annotations

import json
import re
from typing import Any

CONTROLLERS = ("ReplicationController", "Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "CronJob")
COMPANIONS = ("V1beta1PodGroup", "V1alpha3CompositePodGroup", "ResourceV1ResourceClaim", "V1ResourceClaimTemplate")
ROOTS = (*(f"V1{kind}" for kind in ("Pod", "PodTemplate", *CONTROLLERS)), *COMPANIONS)


def api_fields() -> dict[str, dict[str, str]]:
    """Every type that the roots are made of: field -> type, as the client writes it ("str", "List[V1Volume]").

    Importing the client takes half a second, and pytest imports this module in each of its workers.
    """
    import kubernetes.client

    types: dict[str, dict[str, str]] = {}
    waiting = [*ROOTS]
    while waiting:
        name = waiting.pop()
        model: Any = getattr(kubernetes.client, name, None)
        if name not in types and model is not None:
            types[name] = {model.attribute_map[field]: kind for field, kind in model.openapi_types.items()}
            waiting += [re.split(r"[\[\] ,]+", f"{kind}]")[-2] for kind in types[name].values()]
    return dict(sorted(types.items()))


if __name__ == "__main__":
    lines = (f'"{name}": {json.dumps(fields, sort_keys=True)}' for name, fields in api_fields().items())
    print("{\n" + ",\n".join(lines) + "\n}")
