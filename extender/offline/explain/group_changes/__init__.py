"""Suggests changes for a pod group. Start with `admitting` (it does not fit) or `obstacles` (no scheduler tries it)."""
