"""Reads a cluster's objects from files, and writes them.

A snapshot is what `kubectl get -o yaml`, `extender snapshot` or a person has written: files, a directory or standard
input. It is read leniently, because an API server wrote most of it: `files` finds the objects, and `objects` converts
them, fills in defaults, and makes errors of decoding readable. Start reading at `files`.
"""
