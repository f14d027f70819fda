"""Finds the devices that each node can access, and the devices that are allocated to claims.

The modules read resource slices, taint rules, nodes and claims through the table's journal. For each node they find the
pools, in the form that the allocator needs; they also find the allocated devices and the totals of a class. Start
reading at `inventory.Inventories`.
"""
