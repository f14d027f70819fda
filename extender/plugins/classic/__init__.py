"""Rules that only a classic `kind: Policy` can name."""
