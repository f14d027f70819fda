"""Suggests changes for a pod group: `admitting` for one that finds no room, `obstacles` for one that none tries."""
