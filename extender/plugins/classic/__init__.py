"""Contains the rules that only a classic `kind: Policy` can name."""
