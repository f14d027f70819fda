"""The commands that answer questions about a cluster: a live one, one in files, or one in a recording.

They print text, JSON, YAML or an HTML page. `sources` has what they share: where a cluster comes from, progress, exit
statuses. Start reading at `explain`.
"""
