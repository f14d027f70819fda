"""Decides which pod the scheduler tries next, and when a rejected pod is tried again.

Waiting pods and cluster events enter through `PriorityQueue.add`, `delete` and `move`. The scheduler takes pods one by
one with `pop`. After an attempt, the scheduler calls `add_unschedulable` for a pod that was rejected or failed with an
error, and `done` for any other pod.

The caller passes in the clock, the PreEnqueue rules and the queueing hints. Start with priority_queue.py, which draws
the path of a pod. sub_queues.py defines the four tiers, heaps.py orders the pods in two of them and shares the thread
between namespaces, waiting_index.py finds the pods that an event may help, and entries.py records the events that
arrive during an attempt. Source: upstream backend/queue.
"""
