"""Policies: what users write to choose the rules, their weights and their arguments."""
