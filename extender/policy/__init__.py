"""Reads policies: files in which users choose plugins, their weights and arguments, and other extenders.

`loading` turns the text of a file or ConfigMap into a `Policy` with its profiles. `faults` collects all errors in the
text, each with its path and the most similar known name. `configuration` reads a KubeSchedulerConfiguration, `classic`
the older `kind: Policy`; `library` finds the plugins and users' rules that they name. Start with `loading`.
"""
