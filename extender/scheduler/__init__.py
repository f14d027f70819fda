"""The scheduler's loop: takes pods from the queue, chooses a node for each, and binds it.

Start with `schedule_one`, the way of one pod from the queue to its node; `scheduling_cycle` is the decision. `binding`
holds what a pod waits for before its Binding, `preemption` the evictions, `event_router` the way from the cache's changes
to the queue. `ports` are the interfaces to the API server and to telemetry.
"""
