"""Compiles and evaluates CEL, the language of device selectors, in the same way as the API server.

`device_selectors.matches` returns True if a device matches an expression, or raises a SelectorError. `syntax` parses
text into a tree of the nodes in `syntax_tree`; `program` compiles the tree into closures that call the functions in
`library`. Start reading at `device_selectors.matches`. The functions are listed in docs/cel.md.
"""
