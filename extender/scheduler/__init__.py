"""The scheduler's own loop: scheduling cycle, binding cycle, preemption, failures."""
