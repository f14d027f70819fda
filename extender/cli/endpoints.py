"""Paths that are served, for `extender reference endpoints`; a test compares them with what the processes serve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_VERB = "of k8s.io/kube-scheduler/extender/v1; --prefix and the verb's name are settings"
_ROWS = (
    ("POST", "/scheduler/filter", "serve", f"ExtenderArgs, which nodes are feasible; {_VERB}"),
    ("POST", "/scheduler/prioritize", "serve", f"ExtenderArgs, scores of 0 to 10; {_VERB}"),
    ("POST", "/scheduler/preempt", "serve", f"ExtenderPreemptionArgs, which victims would do; {_VERB}"),
    ("POST", "/scheduler/bind", "serve", f"ExtenderBindingArgs, checks, books and binds; {_VERB}"),
    ("GET", "/livez", "serve, schedule", "200 while the process lives; ?verbose lists the checks"),
    ("GET", "/healthz", "serve, schedule", "the same as /livez, by its older name"),
    ("GET", "/readyz", "serve, schedule", "200 once all kinds are in the cache in full; ?verbose tells of each check"),
    ("GET", "/metrics", "serve, schedule", "series for Prometheus; serve has these four at --metrics-bind too"),
    ("POST", "/simulate", "serve, schedule", "with --simulate: would pods fit, with nodes that do not exist yet"),
    ("GET", "/ui", "serve, schedule", "pages for people, each JSON too: pods that wait, a pod, nodes, configurations"),
    ("GET", "/debug/decisions", "serve, schedule", "the last decisions about each pod, or of ?pod=NAMESPACE/NAME"),
    ("GET", "/debug/cache/dump", "serve, schedule", "nodes, pods and what they add up to, as the cache has them"),
    ("POST", "/debug/cache/compare", "serve, schedule", "finds what differs from the API server, and puts it right"),
    ("POST", "/debug/log-level", "serve, schedule", "logs from now on what is as severe as ?level=debug, and above"),
    ("GET", "/configz", "serve, schedule", "the settings in force, from file, environment and flags"),
    ("GET", "/debug/pods", "schedule", "every pod that it has yet to place, which extender status prints"),
)  # fmt: skip


def endpoints() -> Sequence[Mapping[str, str]]:
    """Every path that `extender serve` and `extender schedule` serve; pages below /ui/ are left out."""
    return [dict(zip(("METHOD", "PATH", "SERVED BY", "MEANING"), row, strict=True)) for row in _ROWS]
