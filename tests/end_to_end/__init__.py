"""The extender as users run it, under the real kube-scheduler, against the real API server."""
