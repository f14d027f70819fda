"""Suggests changes for a pod group: `admitting` if it does not fit, `obstacles` if no scheduler tries it."""
