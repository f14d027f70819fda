"""Decides which pod the scheduler tries next, and when it tries a rejected pod again.

Input: waiting pods and cluster events, through `PriorityQueue.add`, `delete` and `move`. Output: one pod after the
other through `pop`. The scheduler gives a rejected pod back with `add_unschedulable`, and reports any other with
`done`. The clock is passed in, and the queue calls nothing except PreEnqueue rules and queueing hints. Start with
priority_queue.py, which draws the path of a pod. sub_queues.py defines the four tiers, unschedulable.py finds the pods
that an event may help, and in_flight.py records the events that arrive during an attempt. Source: upstream
backend/queue.
"""
