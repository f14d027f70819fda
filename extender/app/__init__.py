"""The composition roots: one module for each process (`serve`, `schedule`), and where their cluster comes from."""
