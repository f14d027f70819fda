"""The commands that answer questions about a cluster: live, in files, or in a recording.

In: options. Out: text, JSON, YAML or a page. `sources` has what they share: where a cluster comes from, progress, and
exit statuses. Begin with `explain`.
"""
