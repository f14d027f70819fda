"""Runs the scheduling loop: takes pods from the queue, chooses a node for each, and binds it.

Start with `schedule_one`, which takes one pod from the queue to its node. `engine.decide` makes the decision.
`reservations` reserves what a pod needs before its Binding, and `waiting_pods` holds it until that is ready.
`preemption` carries out evictions, and `event_router` turns changes of the cache into events of the queue. `modeler`
takes the snapshots that `extender status` shows, and `reservations.StartupRecovery` cleans up after a killed scheduler.
`scheduler_ports` defines the interfaces to the API server and to telemetry.
"""
