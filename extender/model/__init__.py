"""Kubernetes values as msgspec structs, decoded straight from bytes: only the fields that are used."""
