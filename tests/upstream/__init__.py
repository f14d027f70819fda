"""`make test-upstream`: Kubernetes' own end-to-end specs against the stock scheduler, the webhook and the loop.

`suite` builds them from the module proxy, with a fake kubelet; `cluster` runs what they need; `table` makes
docs/conformance.md of their reports.
"""
