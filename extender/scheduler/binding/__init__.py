"""The binding cycle of an assumed pod: its volumes and claims are written and awaited, then the pod is bound.

In come assumed pods with their reservations, from the scheduling cycle; out go writes to the API server, by the
protocols of scheduler/ports.py, and pods that failed, to the failure handler. Begin with cycle.py; reservations.py has
the interface that volumes.py and claims.py implement, waiting.py the pods that wait for volumes and devices.
"""
