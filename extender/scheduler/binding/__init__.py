"""Reserves a pod's volumes and devices before its Binding, writes them, and waits until they are ready.

Start with `reservations`, which defines the interface. `volume_reservations` and `device_reservations` implement it.
`waiting_pods` holds the pods that wait for reservations or at Permit.
"""
