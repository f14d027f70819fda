"""Converts the old `kind: Policy`, which lists predicates and priorities by name, into a profile with their plugins."""
