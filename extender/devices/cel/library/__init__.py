"""Defines the functions of CEL, by their signatures.

Each function takes CEL values, and returns a value or raises an EvaluationError. Start reading at `overloads`, the
table of all functions by name. Each of the other modules defines the functions for one subject, such as times.
"""
