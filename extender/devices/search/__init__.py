"""The search for the first devices that satisfy a pod's requests."""
