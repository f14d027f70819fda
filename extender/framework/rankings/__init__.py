"""The nodes' ranking for pods of one template, kept from one replica to the next: the same decisions, at less cost.

Profiles and tables come in, the best rows go out. Begin with `rankings`.
"""
