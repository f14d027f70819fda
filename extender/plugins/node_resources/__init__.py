"""NodeResourcesFit and NodeResourcesBalancedAllocation: the resources that a node has left."""
