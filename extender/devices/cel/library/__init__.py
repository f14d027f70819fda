"""Defines the functions of CEL, by their signatures.

In: values. Out: a value or an EvaluationError. Start reading at `overloads`, the table of all functions by name; the
other modules define them by subject.
"""
