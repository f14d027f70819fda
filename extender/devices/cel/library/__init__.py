"""The functions of CEL by their signatures.

In: values. Out: a value or an EvaluationError. Begin with `overloads`, the table of all functions by name; the other
modules hold them by subject.
"""
