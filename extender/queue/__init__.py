"""The scheduling queue: activeQ, backoffQ and unschedulable pods, events in flight and nominations."""
