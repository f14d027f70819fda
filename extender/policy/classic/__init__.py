"""The classic `kind: Policy`: predicate and priority names become profiles."""
