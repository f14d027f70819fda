"""Allocates devices to claims on one node.

Source: k8s.io/dynamic-resource-allocation/structured, "incubating".

In: the requests of claims, the pools of a node, the devices that are already allocated, a time limit. Out: the devices
for each claim, or None. It does not depend on tables or pods. Start reading at `allocator.allocate`.
"""
