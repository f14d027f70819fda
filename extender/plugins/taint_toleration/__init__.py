"""TaintToleration: taints must be, or had better be, tolerated."""
