"""The configuration of a kube-scheduler that calls the extender.

`extender rule new` and `extender demo scheduler` use this text. A test compares the configurations of the chart, the
README and docs/rules.md with it.
"""

from __future__ import annotations

SCHEDULER_CONFIGURATION = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
percentageOfNodesToScore: 100 # otherwise the extender is asked about a share of the nodes only
extenders:
- urlPrefix: http://{address}/scheduler
  filterVerb: filter
  prioritizeVerb: prioritize
  preemptVerb: preempt
  bindVerb: bind
  weight: 1
  nodeCacheCapable: true # without it, in-tree scores are wrong: kubernetes#141781
"""
