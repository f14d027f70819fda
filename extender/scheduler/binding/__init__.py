"""The binding cycle: volumes and claims are written and awaited, then the pod is bound."""
