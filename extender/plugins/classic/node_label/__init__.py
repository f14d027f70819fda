"""NodeLabel: nodes must have, or had better have, certain labels."""
