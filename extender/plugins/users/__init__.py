"""Turns users' functions into rules of the scheduler, with decorators such as `@predicate`.

Start with `predicate`. `function` reads the signature, and `rule_calls` calls the function with a time limit. `handle`
is what a rule sees of the cluster and its process. Users import the decorators from `extender`.
"""
