"""Finds the devices that each node can access, and the devices that are allocated to claims.

The modules read resource slices, taint rules, nodes and claims through the table's journal. They find the pools of each
node in the form that the allocator needs, the allocated devices, and the totals of each class. Start reading at
`inventory.Inventories`.
"""
