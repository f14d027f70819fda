"""`make test-versions`: the end-to-end tests against the minor versions of Kubernetes that are supported.

`survey` asks an API server and a scheduler of a version what they serve and switch on; `table` makes docs/versions.md.
"""
