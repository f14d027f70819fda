"""The commands that answer questions about a cluster: live, in files, or in a recording.

They print text, JSON, YAML or a page. `sources` has what they share: where a cluster comes from, progress, exit
statuses. Start reading at `explain`.
"""
