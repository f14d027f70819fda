"""Rules that only the classic `kind: Policy` names."""
