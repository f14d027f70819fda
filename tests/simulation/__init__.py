"""A deterministic simulation: API server, schedulers, network, people and extenders in one thread, from one seed.

The extender's parts are the real ones, threads and all. Only what is below them is made here:

- `tasks`: virtual time, and tasks (greenlets) in place of threads. The seed says which task goes on.
- `primitives`: what the real modules use of `threading`, `queue` and `time`; at every lock others may run.
- `network`: a Connection to the API server whose messages are late, lost, repeated or cut off.
- `api_server`: the truth, as a plain model; `judge` looks at every change and every Binding.

On top of them `replica` composes an extender, `own_scheduler` a scheduler of the project's own, `stock_scheduler` is a
model of kube-scheduler as an extender's client, and `people` is everybody else. `world` puts one of each together, lets
them live, then lets faults end and looks at what is left.

    PYTHONHASHSEED=0 python -m tests.simulation 17        # this seed, with all that happens
"""
