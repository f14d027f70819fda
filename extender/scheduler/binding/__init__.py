"""Volumes and devices of a pod before its Binding: they are reserved, written, and awaited.

Start with `reservations`, the interface. `volume_reservations` and `device_reservations` implement it; `waiting` holds
the pods that wait for them or at Permit.
"""
