"""The scheduling queue: which pod is tried next, and when a rejected pod is tried again.

In: waiting pods and cluster events, by `PriorityQueue.add`, `delete` and `move`. Out: one pod after the other by
`pop`; it comes back by `add_unschedulable`, or leaves by `done`. The clock is passed in, and the queue calls nothing
but PreEnqueue rules and queueing hints. Start with priority_queue.py, which draws the way of a pod. sub_queues.py has
the four tiers, unschedulable.py the index from events to pods, in_flight.py the events that arrive during an attempt.
Source: upstream backend/queue.
"""
