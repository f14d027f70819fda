"""The allocator of devices for one node. Source: k8s.io/dynamic-resource-allocation/structured, "incubating".

In: the requests of claims, the pools of a node, the devices allocated already, a time limit. Out: the devices of each
claim, or None. It knows nothing of tables and pods. Begin with `allocator.allocate`.
"""
