"""Decides which pod the scheduler tries next, and when a rejected pod is tried again.

Waiting pods and cluster events enter through `PriorityQueue.add`, `delete` and `move`. The scheduler takes one pod
after the other with `pop`. It returns a rejected pod with `add_unschedulable`, and calls `done` for every other pod.
The caller passes in the clock. The queue calls no other code than PreEnqueue rules and queueing hints. Start with
priority_queue.py, which draws the path of a pod. sub_queues.py defines the four tiers, unschedulable.py finds the pods
that an event may help, and in_flight.py records the events that arrive during an attempt. Source: upstream
backend/queue.
"""
