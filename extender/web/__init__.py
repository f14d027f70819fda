"""The Flask service: verbs, health, metrics and debug pages over HTTP."""
