"""Reserve and Permit: rules that a pod passes between the choice of its node and its Binding.

In come pods that were assumed on a node; out go permits, which a pod may have to wait for. Begin with `permits`, which
runs the rules and knows the pods that wait; `handle` is what the rules see of it.
"""

from extender.framework.permit.handle import Handle, Wait, WaitingPod
from extender.framework.permit.permits import Permit, Permits, ReserveRule

__all__ = ["Handle", "Permit", "Permits", "ReserveRule", "Wait", "WaitingPod"]
