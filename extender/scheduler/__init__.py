"""The scheduler's loop: takes pods from the queue, chooses a node for each, and binds it.

Start with `schedule_one`, the way of one pod from the queue to its node; `scheduling_cycle` is the decision. `binding`
holds what a pod waits for before its Binding, `preemption` carries out evictions, `event_router` turns changes of the
cache into events of the queue. `ports` are the interfaces to the API server and to telemetry.
"""
