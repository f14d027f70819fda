"""Allocates devices to claims on one node.

Source: k8s.io/dynamic-resource-allocation/structured, "incubating".

The allocator reads the requests of claims, the pools of a node, the devices that are already allocated, and a time
limit. It returns the devices for each claim, or None. It does not depend on tables or pods. Start reading at
`allocator.allocate`.
"""
