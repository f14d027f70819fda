"""Answers as HTML: a page of a server, the same page in one self-contained file, or a part for a notebook.

A page is made from what an answer's `to_dict` returns, and from the cluster's nodes if it has a map. Everything that
came from the cluster is escaped. Start reading at `rendering`. `charts` has the geometry, `templates` the pages, and
`static` their style and an optional script.
"""
