"""Policies: files in which users choose plugins, their weights and arguments, and other extenders.

`loading` takes the text of a file or ConfigMap and gives a `Policy` with its profiles; everything that is wrong with
it is collected in `faults`, each with its path and the name that may have been meant. `configuration` reads a
KubeSchedulerConfiguration, `classic` the older `kind: Policy`; `library` finds the plugins and users' rules that they
name. Begin with `loading`.
"""
