# %% [markdown]
# Answers questions about a cluster in Python. Each cell runs in a notebook, which shows results as tables. The whole
# file runs as `python examples/answers.py [SNAPSHOT]`.

# %%
import sys
from importlib.resources import files

from extender import Cluster

snapshot = sys.argv[1] if len(sys.argv) > 1 else str(files("extender.offline") / "example.yaml")
cluster = Cluster.load(snapshot)
print(f"{len(cluster.nodes)} nodes, {len(cluster.pending)} pods wait")

# %% Why do they wait?
for pending in cluster.explain_pending():
    print(f"{pending.namespace}/{pending.name}: {pending.verdict}, {pending.blocker}")

# %% One of them, with the smallest change that would let it run.
waiting = [cluster.explain(pod.key) for pod in cluster.pending]
for explanation in waiting:
    if not explanation.to_dict()["fits"] and explanation.changes:
        print(f"{explanation.pod.key}: {explanation.changes[0].text}")

# %% Where would the pods of a node go?
drained = cluster.drain(cluster.nodes[0])
for eviction in drained.evictions:
    homes = [each.node for each in drained.placements if each.pod == eviction.pod]
    print(f"{eviction.pod}: {homes[0] if homes else 'no new home'}")

# %% Placements as rows, which pandas.DataFrame takes as they are.
rows = drained.to_dict()["placements"]
print(sorted(rows[0]) if rows else "nothing moved")

# %% How many more pods of a template fit, and what runs out first?
container = {"name": "c", "image": "registry.example/app", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}
room = cluster.capacity(
    [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "app"}, "spec": {"containers": [container]}}]
)
print(f"room for {room.total} more, by zone {dict(room.by_zone)}")
