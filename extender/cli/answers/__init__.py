"""The commands that answer questions about a cluster: a live one, one in files, or one in a recording.

They print text, JSON, YAML or an HTML page. `source_options` has what these commands have in common: the options that
name a cluster, progress, and exit statuses. Start with `explain`.
"""
