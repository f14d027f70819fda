"""Makes pods and workloads for the comparison with the API server: most are valid, many have one fault."""

from __future__ import annotations

from typing import Any

from tests.builders import Object
from tests.offline.admission import placement, requirements, world
from tests.offline.admission.dice import Dice

_LABELS = {"app": ("web", "db"), "tier": ("1", "2"), "example.com/team": ("a", "b")}
_KINDS = ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "CronJob", "ReplicationController")
_VERSIONS = {"Job": "batch/v1", "CronJob": "batch/v1", "ReplicationController": "v1"}
POD_NAME = "p"
_FAULTS = 4  # per cent, of each part of a pod


def made(seed: int, number: int) -> tuple[Object, list[str]]:
    """Returns a pod or a workload, and the names of what was made wrong in it."""
    dice = Dice(f"{seed}/{number}")
    obj = _workload(dice, number) if dice.chance(30) else _pod(dice)
    return obj, dice.faults


def _pod(dice: Dice) -> Object:
    metadata = _metadata(dice, POD_NAME)
    spec = _spec(dice, metadata["labels"])
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    dice.spoil(pod, _FAULTS, bad_label_key, bad_label_value, bad_name, bad_annotation)
    spec.update(dice.maybe(8, nodeName="n1"))
    return pod


def bad_label_key(pod: Any) -> None:
    pod["metadata"]["labels"]["-x/y"] = "1"


def bad_label_value(pod: Any) -> None:
    pod["metadata"]["labels"]["x"] = "a b"


def bad_name(pod: Any) -> None:
    pod["metadata"]["name"] = "Web_1"


def bad_annotation(pod: Any) -> None:
    pod["metadata"]["annotations"] = {"a b": "c"}


def _metadata(dice: Dice, name: str) -> dict[str, Any]:
    labels = {key: dice.one(*values) for key, values in _LABELS.items() if dice.chance(60)}
    namespace = world.PLAIN if dice.chance(55) else dice.one(*world.NAMESPACES)
    return {"name": name, "namespace": namespace, "labels": labels}


def _spec(dice: Dice, labels: dict[str, str]) -> dict[str, Any]:
    spec: dict[str, Any] = {"containers": _containers(dice, "c", dice.one(1, 1, 2, 3))}
    if dice.chance(25):
        spec["initContainers"] = _containers(dice, "i", dice.one(1, 2))
        for container in spec["initContainers"]:
            container.update(dice.maybe(40, restartPolicy="Always"))
    if dice.chance(25):
        spec["resources"] = requirements.whole(dice)
    if dice.chance(30):
        _ports(dice, spec)
    _volumes(dice, spec)
    placement.add(dice, spec, labels)
    _classes(dice, spec)
    spec.update(dice.maybe(10, schedulingGates=[{"name": "example.com/wait"}, {"name": "b"}]))
    dice.spoil(spec, _FAULTS, doubled_gate, bad_gate, bad_hostname, bad_dns_policy, no_deadline, host_pid_of_own_users)
    spec.update(dice.maybe(5, terminationGracePeriodSeconds=dice.one(-5, 0, 60)))
    dice.spoil(spec, 6, no_containers, doubled_container, init_named_like_another, no_image, bad_container_name)
    dice.spoil(spec, 2, few_huge_pages_of_the_whole)
    dice.spoil(spec, 3, dns_of_no_server, host_network_of_own_users, unknown_system, windows_with_resources)
    dice.spoil(spec, 2, rules_without_policy)
    dice.spoil(spec, 3, image_with_space, ephemeral_container, bad_pull_policy, bad_restart_policy_of_container)
    return spec


def no_containers(spec: Any) -> None:
    spec["containers"] = []


def doubled_container(spec: Any) -> None:
    spec["containers"].append(dict(spec["containers"][0]))


def init_named_like_another(spec: Any) -> None:
    spec["initContainers"][0]["name"] = spec["containers"][0]["name"]


def no_image(spec: Any) -> None:
    del spec["containers"][0]["image"]


def bad_container_name(spec: Any) -> None:
    spec["containers"][-1]["name"] = "Main_1"


def few_huge_pages_of_the_whole(spec: Any) -> None:
    spec["containers"][0]["resources"] = {"limits": {"hugepages-2Mi": "4Mi", "cpu": "1"}}
    spec["resources"] = {"limits": {"hugepages-2Mi": "2Mi", "cpu": "8"}}


def dns_of_no_server(spec: Any) -> None:
    spec["dnsPolicy"] = "None"


def host_network_of_own_users(spec: Any) -> None:
    spec["hostUsers"], spec["hostNetwork"] = False, True
    for container in (*spec["containers"], *spec.get("initContainers", ())):
        container.pop("ports", None)


def unknown_system(spec: Any) -> None:
    spec["os"] = {"name": "bsd"}


def windows_with_resources(spec: Any) -> None:
    spec["os"], spec["resources"] = {"name": "windows"}, {"requests": {"cpu": "8"}}
    spec.pop("hostUsers", None)


def rules_without_policy(spec: Any) -> None:
    rule = {"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}}
    spec["containers"][0]["restartPolicyRules"] = [rule]


def image_with_space(spec: Any) -> None:
    spec["containers"][0]["image"] = "nginx "


def ephemeral_container(spec: Any) -> None:
    spec["ephemeralContainers"] = [{"name": "debug", "image": "busybox"}]


def bad_pull_policy(spec: Any) -> None:
    spec["containers"][0]["imagePullPolicy"] = "Sometimes"


def bad_restart_policy_of_container(spec: Any) -> None:
    spec["containers"][0]["restartPolicy"] = "Perhaps"


def doubled_gate(spec: Any) -> None:
    spec["schedulingGates"] = [{"name": "a"}, {"name": "a"}]


def bad_gate(spec: Any) -> None:
    spec["schedulingGates"] = [{"name": "a b"}]


def bad_hostname(spec: Any) -> None:
    spec["hostname"] = "A.b"


def bad_dns_policy(spec: Any) -> None:
    spec["dnsPolicy"] = "Mine"


def no_deadline(spec: Any) -> None:
    spec["activeDeadlineSeconds"] = 0


def host_pid_of_own_users(spec: Any) -> None:
    spec["hostUsers"], spec["hostPID"] = False, True


def _containers(dice: Dice, prefix: str, count: int) -> list[dict[str, Any]]:
    return [
        {
            "name": f"{prefix}{number}",
            "image": dice.one("nginx", "registry.example/a:1"),
            **dice.maybe(75, resources=requirements.of_container(dice)),
        }
        for number in range(count)
    ]


def _ports(dice: Dice, spec: dict[str, Any]) -> None:
    spec.update(dice.maybe(50, hostNetwork=True))
    everywhere = [*spec["containers"], *spec.get("initContainers", ())]
    for number, container in enumerate(everywhere):
        port = 8000 + (0 if dice.chance(8) else number)
        container["ports"] = [{"containerPort": port}]
        container["ports"][0].update(dice.maybe(40, hostPort=port if dice.chance(80) else 9000))
        container["ports"][0].update(dice.maybe(30, protocol=dice.one("TCP", "UDP")))
        container["ports"][0].update(dice.maybe(20, name=dice.one("http", "web-1")))
        container["ports"][0].update(dice.maybe(10, hostIP=dice.one("127.0.0.1", "0.0.0.0")))
        dice.spoil(container["ports"], 6, doubled_port, no_container_port, high_port, high_host_port, bad_port_name)


def doubled_port(ports: Any) -> None:
    ports.append({**ports[0], "hostPort": ports[0]["containerPort"]})
    ports[0]["hostPort"] = ports[0]["containerPort"]


def no_container_port(ports: Any) -> None:
    ports[0]["containerPort"] = 0


def high_port(ports: Any) -> None:
    ports[0]["containerPort"] = 70000


def high_host_port(ports: Any) -> None:
    ports[0]["hostPort"] = 70000


def bad_port_name(ports: Any) -> None:
    ports[0]["name"] = "Much_too_long_a_name"


_CLAIM_SPEC = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


def _volumes(dice: Dice, spec: dict[str, Any]) -> None:
    sources: list[dict[str, Any]] = [
        {"emptyDir": {}},
        {"persistentVolumeClaim": {"claimName": "data"}},
        {"configMap": {"name": "settings"}},
        {"secret": {"secretName": "key"}},
        {"hostPath": {"path": "/var/log"}},
        {"ephemeral": {"volumeClaimTemplate": {"spec": _CLAIM_SPEC}}},
        {},
    ]
    if dice.chance(25):
        spec["volumes"] = [{"name": f"v{number}", **dice.choice(sources)} for number in range(dice.one(1, 2, 3))]
        for container in spec["containers"]:
            container["volumeMounts"] = [{"name": "v0", "mountPath": "/data"}]
        dice.spoil(spec, 15, doubled_volume, two_sources, no_claim_name, bad_volume_name, unknown_mount, no_mount_path)
        dice.spoil(spec, 10, doubled_mount_path, no_access_mode, no_storage, no_template, claim_of_ephemeral_volume)
        dice.spoil(spec, 10, mixed_access_modes, bad_access_mode, bad_volume_mode, bad_storage_class)
        dice.spoil(spec, 10, path_upwards, no_server, no_monitors)
    if dice.chance(12):
        spec["resourceClaims"] = [
            {"name": "gpu", "resourceClaimTemplateName": "gpus"},
            {"name": "nic", "resourceClaimName": "nic-1"},
        ]
        spec["containers"][0].setdefault("resources", {})["claims"] = [{"name": "gpu"}]
        dice.spoil(spec, 25, doubled_claim, two_claim_sources, no_claim_source, unknown_claim, claim_used_twice)


def doubled_volume(spec: Any) -> None:
    spec["volumes"].append(spec["volumes"][0])


def two_sources(spec: Any) -> None:
    spec["volumes"][0] = {"name": "v0", "emptyDir": {}, "hostPath": {"path": "/x"}}


def no_claim_name(spec: Any) -> None:
    spec["volumes"][0] = {"name": "v0", "persistentVolumeClaim": {"claimName": ""}}


def bad_volume_name(spec: Any) -> None:
    spec["volumes"][-1]["name"] = "V.1"


def unknown_mount(spec: Any) -> None:
    spec["containers"][0]["volumeMounts"][0]["name"] = "other"


def no_mount_path(spec: Any) -> None:
    spec["containers"][0]["volumeMounts"][0]["mountPath"] = ""


def doubled_mount_path(spec: Any) -> None:
    spec["containers"][0]["volumeMounts"] *= 2


def no_access_mode(spec: Any) -> None:
    template = {"spec": {**_CLAIM_SPEC, "accessModes": []}}
    spec["volumes"][0] = {"name": "v0", "ephemeral": {"volumeClaimTemplate": template}}


def no_storage(spec: Any) -> None:
    template = {"spec": {"accessModes": ["ReadWriteOnce"]}}
    spec["volumes"][0] = {"name": "v0", "ephemeral": {"volumeClaimTemplate": template}}


def claim_of_ephemeral_volume(spec: Any) -> None:
    own = {"name": "e", "ephemeral": {"volumeClaimTemplate": {"spec": _CLAIM_SPEC}}}
    spec["volumes"] += [own, {"name": "own", "persistentVolumeClaim": {"claimName": f"{POD_NAME}-e"}}]


def mixed_access_modes(spec: Any) -> None:
    _claim(spec, accessModes=["ReadWriteOncePod", "ReadWriteOnce"])


def bad_access_mode(spec: Any) -> None:
    _claim(spec, accessModes=["ReadSometimes"])


def bad_volume_mode(spec: Any) -> None:
    _claim(spec, volumeMode="Tape")


def bad_storage_class(spec: Any) -> None:
    _claim(spec, storageClassName="Fast Disks")


def _claim(spec: Any, **fields: Any) -> None:
    spec["volumes"][0] = {"name": "v0", "ephemeral": {"volumeClaimTemplate": {"spec": {**_CLAIM_SPEC, **fields}}}}


def path_upwards(spec: Any) -> None:
    spec["volumes"][0] = {"name": "v0", "hostPath": {"path": "/a/../b"}}


def no_server(spec: Any) -> None:
    spec["volumes"][0] = {"name": "v0", "nfs": {"server": "", "path": "/"}}


def no_monitors(spec: Any) -> None:
    spec["volumes"][0] = {"name": "v0", "rbd": {"monitors": [], "image": "x"}}


def no_template(spec: Any) -> None:
    spec["volumes"][0] = {"name": "v0", "ephemeral": {}}


def doubled_claim(spec: Any) -> None:
    spec["resourceClaims"].append(spec["resourceClaims"][0])


def two_claim_sources(spec: Any) -> None:
    spec["resourceClaims"][0]["resourceClaimName"] = "x"


def no_claim_source(spec: Any) -> None:
    spec["resourceClaims"][0] = {"name": "gpu"}


def unknown_claim(spec: Any) -> None:
    spec["containers"][0]["resources"]["claims"] = [{"name": "tpu"}]


def claim_used_twice(spec: Any) -> None:
    spec["containers"][0]["resources"]["claims"] = [{"name": "gpu"}, {"name": "gpu", "request": "r"}]


def _classes(dice: Dice, spec: dict[str, Any]) -> None:
    """Adds a PriorityClass and a RuntimeClass, and values that agree with them or not."""
    spec.update(dice.maybe(30, priorityClassName=dice.one(*world.PRIORITY_CLASSES, "system-node-critical")))
    spec.update(dice.maybe(4, priorityClassName="absent"))
    spec.update(dice.maybe(8, priority=dice.one(0, 1000, 500, -10)))
    spec.update(dice.maybe(8, preemptionPolicy=dice.one("Never", "PreemptLowerPriority")))
    spec.update(dice.maybe(20, runtimeClassName=dice.one(*world.RUNTIME_CLASSES)))
    spec.update(dice.maybe(2, runtimeClassName=dice.one("absent", "", "Bad_Name")))
    spec.update(dice.maybe(4, overhead=dice.one({"cpu": "250m", "memory": "64Mi"}, {"cpu": "0.1"}, {"cpu": "1"}, {})))
    spec.update(dice.maybe(12, nodeSelector={"runtime": dice.one("gvisor", "kata")}))


def _workload(dice: Dice, number: int) -> Object:
    kind = dice.one(*_KINDS)
    metadata = _metadata(dice, f"w{number}")
    labels = metadata["labels"] or {"app": "web"}
    pod_spec = _spec(dice, labels)
    pod_spec.update({"restartPolicy": dice.one("Never", "OnFailure")} if kind in ("Job", "CronJob") else {})
    template: dict[str, Any] = {"metadata": {"labels": labels}, "spec": pod_spec}
    spec = _workload_spec(dice, kind, labels, template)
    api_version = _VERSIONS.get(kind, "apps/v1")
    obj = {"apiVersion": api_version, "kind": kind, "metadata": {**metadata, "labels": {}}, "spec": spec}
    dice.spoil(
        obj, 20, no_selector, empty_selector, other_selector, bad_selector_key, wrong_restart_policy, no_replicas
    )
    dice.spoil(obj, 25, bad_name, bad_schedule, no_parallelism, bad_strategy, deadline, indexed, job_selector)
    dice.spoil(obj, 8, no_storage_of)
    dice.spoil(obj, 8, update_of_recreate, no_update_at_all, other_job_name, own_uid_of_job, no_index, manual_cron_job)
    dice.spoil(obj, 20, long_name, negative_ordinal, own_selector_of_job, nothing_to_select)
    return obj


def update_of_recreate(obj: Any) -> None:
    spec = obj["spec"] if obj["kind"] == "Deployment" else obj["no"]
    spec["strategy"] = {"type": "Recreate", "rollingUpdate": {"maxSurge": 1}}


def no_update_at_all(obj: Any) -> None:
    spec = obj["spec"] if obj["kind"] == "Deployment" else obj["no"]
    spec["strategy"] = {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": "0%"}}


def other_job_name(obj: Any) -> None:
    spec = obj["spec"] if obj["kind"] == "Job" else obj["no"]
    spec["template"]["metadata"] = {"labels": {"job-name": "other"}}


def own_uid_of_job(obj: Any) -> None:
    spec = obj["spec"] if obj["kind"] == "Job" else obj["no"]
    spec["template"]["metadata"] = {"labels": {"controller-uid": "mine"}}


def no_index(obj: Any) -> None:
    spec = obj["spec"].get("jobTemplate", obj)["spec"]
    spec["backoffLimitPerIndex"] = 1 if "Job" in obj["kind"] else obj["no"]
    spec.pop("completionMode", None)


def manual_cron_job(obj: Any) -> None:
    spec = obj["spec"]["jobTemplate"]["spec"]
    spec["manualSelector"] = True


def long_name(obj: Any) -> None:
    obj["metadata"]["name"] = "w" * 53 if obj["kind"] == "CronJob" else obj["no"]


def negative_ordinal(obj: Any) -> None:
    obj["spec"]["ordinals"] = {"start": -1} if obj["kind"] == "StatefulSet" else obj["no"]


def own_selector_of_job(obj: Any) -> None:
    spec = obj["spec"] if obj["kind"] == "Job" else obj["no"]
    spec.update(manualSelector=True, selector={"matchLabels": {"app": "other"}})


def nothing_to_select(obj: Any) -> None:
    spec = obj["spec"] if obj["kind"] == "ReplicationController" else obj["no"]
    del spec["selector"]
    spec["template"]["metadata"] = {}


def _workload_spec(dice: Dice, kind: str, labels: dict[str, str], template: dict[str, Any]) -> dict[str, Any]:
    if kind in ("Job", "CronJob"):
        spec: dict[str, Any] = {"template": template, **dice.maybe(60, parallelism=3), **dice.maybe(60, completions=2)}
        schedule = dice.one("*/5 * * * *", "@daily", "0 3 * * mon-fri", "1,2 * * jan ?")
        return spec if kind == "Job" else {"schedule": schedule, "jobTemplate": {"spec": spec}}
    selector: Any = labels if kind == "ReplicationController" else {"matchLabels": labels}
    spec = {"selector": selector, "template": template, **dice.maybe(50, replicas=2)}
    if kind == "DaemonSet":
        spec.pop("replicas", None)
    if kind == "StatefulSet" and dice.chance(80):
        spec["volumeClaimTemplates"] = [{"metadata": {"name": "v0"}, "spec": dict(_CLAIM_SPEC)}]
        spec.update(dice.maybe(40, serviceName=dice.one("db", "db", "D_b")))
    return spec


def no_selector(obj: Any) -> None:
    del obj["spec"]["selector"]


def empty_selector(obj: Any) -> None:
    del obj["spec"]["selector"]
    obj["spec"]["selector"] = {}


def other_selector(obj: Any) -> None:
    _labels_of(obj)["app"] = "other"


def bad_selector_key(obj: Any) -> None:
    _labels_of(obj)["a b"] = "x"


def _labels_of(obj: Any) -> Any:
    selector = obj["spec"]["selector"] = dict(obj["spec"]["selector"])
    if obj["kind"] == "ReplicationController":
        return selector
    selector["matchLabels"] = dict(selector["matchLabels"])
    return selector["matchLabels"]


def wrong_restart_policy(obj: Any) -> None:
    _template(obj)["spec"]["restartPolicy"] = "Always" if "Job" in obj["kind"] else "Never"


def _template(obj: Any) -> Any:
    spec = obj["spec"].get("jobTemplate", obj)["spec"]
    return spec["template"]


def no_replicas(obj: Any) -> None:
    obj["spec"]["replicas" if "replicas" in obj["spec"] else "minReadySeconds"] = -1
    if "Job" in obj["kind"]:
        del obj["spec"]["minReadySeconds"]


def bad_schedule(obj: Any) -> None:
    before = obj["spec"]["schedule"]
    obj["spec"]["schedule"] = {"@daily": "*/0 * * * *", "*/5 * * * *": "60 * * * *"}.get(before, f"{before} *")


def no_parallelism(obj: Any) -> None:
    obj["spec"].get("jobTemplate", obj)["spec"]["parallelism"] = -1 if "Job" in obj["kind"] else obj["no"]


def bad_strategy(obj: Any) -> None:
    key = {"Deployment": "strategy", "DaemonSet": "updateStrategy", "StatefulSet": "updateStrategy"}[obj["kind"]]
    obj["spec"][key] = {"type": "Slowly"}


def deadline(obj: Any) -> None:
    _template(obj)["spec"]["activeDeadlineSeconds"] = 60


def indexed(obj: Any) -> None:
    spec = obj["spec"].get("jobTemplate", obj)["spec"]
    spec["completionMode"] = "Indexed" if "Job" in obj["kind"] else obj["no"]
    spec["parallelism"] = 2
    spec.pop("completions", None)


def job_selector(obj: Any) -> None:
    spec = obj["spec"].get("jobTemplate", obj)["spec"]
    spec["selector"] = {"matchLabels": {"app": "web"}} if "Job" in obj["kind"] else obj["no"]


def no_storage_of(obj: Any) -> None:
    obj["spec"]["volumeClaimTemplates"][0]["spec"] = {"accessModes": ["ReadWriteOnce"]}
