"""Compiles and evaluates CEL, the language of device selectors, in the same way as the API server.

`device_selectors.matches` returns True if a device matches an expression, or raises a SelectorError. `syntax` parses
text into a tree; `program` compiles the tree into closures. The functions that they call are listed by name in
`overloads` and in docs/cel.md. Start reading at `device_selectors.matches`.
"""
