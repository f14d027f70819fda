"""The scheduler's own loop, as upstream's schedule_one.go: one pod after the other, from the queue to its node.

In come pods from the queue and tables lent by the cache; out go assumed pods into the cache, failed ones back into the
queue, and writes by the protocols of ports.py. Begin with scheduler.py, which draws the story: the scheduling cycle
(scheduling_cycle.py, diagnosis.py, extenders.py), the binding cycle (binding/) and failures (failures.py,
preemption.py, nominations.py). event_router.py passes the cache's changes on to the queue, startup_recovery.py cleans
up after an earlier scheduler, modeler.py shows every pod and its place.
"""
