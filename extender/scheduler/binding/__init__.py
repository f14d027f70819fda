"""Reserves the volumes and devices of a pod before its Binding, writes them, and waits until they are ready.

Start with `reservations`, the interface. `volume_reservations` and `device_reservations` implement it; `waiting` holds
the pods that wait for reservations or at Permit.
"""
