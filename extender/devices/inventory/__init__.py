"""The devices that nodes have access to, and those that claims hold.

In: resource slices, taint rules, nodes and claims, by the table's journal. Out: for each node its pools as the
allocator wants them, the devices allocated, and the totals of a class. Begin with `inventory.Inventories`.
"""
