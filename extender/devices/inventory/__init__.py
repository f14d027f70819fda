"""Finds the devices that each node can access, and the devices that are allocated to claims.

The modules read resource slices, taint rules, nodes and claims through the table's journal. They find the pools of each
node, the devices that are allocated, and the number of devices of each class on a node. Start reading at
`inventory.Inventories`.
"""
