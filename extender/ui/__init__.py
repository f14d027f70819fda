"""The pages below /ui: pending pods, a pod, the nodes, a node, two configurations; each as HTML and as JSON.

In: a `Look` at a cluster, which is a live cache or a snapshot, and the arguments of a page. Out: an Answer. Pages
change nothing. Begin with `site`; `documents` has the content of each page.
"""
