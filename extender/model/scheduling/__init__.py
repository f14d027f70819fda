"""Defines the objects of the API group scheduling.k8s.io that gather pods into groups."""
