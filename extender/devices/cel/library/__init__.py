"""Defines the functions of CEL, by their signatures.

Each function takes CEL values, and returns a value or raises an EvaluationError. Start reading at `overloads`, the
table of all functions by name; the other modules define them by subject.
"""
