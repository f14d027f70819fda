"""Finds the devices that each node can access, and the devices that are allocated to claims.

In: resource slices, taint rules, nodes and claims, through the table's journal. Out: for each node its pools in the
form that the allocator needs, the allocated devices, and the totals of a class. Start reading at
`inventory.Inventories`.
"""
