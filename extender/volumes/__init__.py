"""What the volume rules share: a pod's claims, which volumes they may be bound to, which can be made, and where."""
