"""Everything that is written to the API server: bindings, evictions, statuses, events, claims, volumes."""
