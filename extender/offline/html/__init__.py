"""Documents as HTML: a whole page of a server, the same page in one file of its own, or a part for a notebook.

In comes what `to_dict` of an answer returns, and the nodes of the cluster where there is a map; out comes text in which
everything that came from a cluster is escaped. Begin reading at `rendering`; `charts` has the geometry, `templates` the
pages, `static` their style and the script that they work without.
"""
