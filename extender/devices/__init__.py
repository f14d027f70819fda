"""Devices for pods: structured parameters of dynamic resource allocation (KEP-4381), with v1.37's default gates.

inventory: which pools each node reaches. allocated: what claims hold already. questions: what a pod asks. search: the
first devices that satisfy it. answers: what came out for each node, kept until something changes. allocation: what
goes into the claims. Source: k8s.io/dynamic-resource-allocation/structured, its "incubating" allocator.
"""
