"""Reads manifests that users write, and fills in what an API server would fill in.

The input is files, directories, standard input or dicts. The result is pods, or an error of one line that says what is
wrong and where. A pod that a user writes is checked for unknown fields and wrong types (`schema`) and for what the API
server would refuse (`structure`, `checks`), taken out of its Deployment or Job (`templates`), and completed or refused
as admission would do it (`admission`). Start reading at `templates`. `extender.snapshots` reads clusters.
"""
