"""Suggests changes for a pod group: `admitting` if it finds no room, `obstacles` if no scheduler tries it."""
