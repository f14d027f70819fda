"""Nodes as columns: resources, taints, images and other facts."""
