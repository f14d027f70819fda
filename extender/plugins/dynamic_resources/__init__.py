"""DynamicResources: the devices that a pod claims must be free on the node."""
