"""Renders answers as HTML: as a page of a server, in one self-contained file, or as a part for a notebook.

A page is made from what an answer's `to_dict` returns, and from the cluster's nodes if it has a map. All text from the
cluster is escaped. Start reading at `rendering`. `templates` has the pages, and `static` their style and an optional
script.
"""
