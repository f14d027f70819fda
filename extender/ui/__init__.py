"""The pages below /ui: pending pods, a pod, the nodes, a node, two configurations; each as HTML and as JSON.

In comes a `Look` at a cluster, which may be a live cache or a snapshot, and the arguments of a page; out comes an
Answer, for whatever server there is. Nothing changes anything. Begin with `site`; `documents` has what each page says.
"""
