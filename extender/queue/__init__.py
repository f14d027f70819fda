"""The scheduling queue, as upstream's backend/queue: which pod is tried next, and which event brings back which pod.

In come waiting pods and cluster events, by `PriorityQueue.add`, `delete` and `move`; out goes one pod after the other,
by `pop`, and each comes back by `add_unschedulable` or ends by `done`. Time is passed in as a clock, and nobody is
called but the PreEnqueue rules and the queueing hints. Begin with priority_queue.py, which draws the way of a pod;
sub_queues.py has the four tiers, unschedulable.py the index from events to pods, in_flight.py the events that come
while pods are being scheduled.
"""
