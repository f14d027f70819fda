"""Serves the pages below /ui, as HTML and as JSON: pending pods, a pod, the nodes, a node, a comparison.

A page is made from a `Look`, which is a cluster at one moment (of a live cache, a snapshot or a recording), and from
the arguments in the URL. Pages never change the cluster. Start reading at `site.Site`.
"""
