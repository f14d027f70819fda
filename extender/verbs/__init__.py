"""Filter, prioritize, preempt and bind: a decoded request becomes an answer. No HTTP."""
