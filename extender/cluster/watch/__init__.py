"""Reflectors: lists and watches of every kind, told to a sink."""
