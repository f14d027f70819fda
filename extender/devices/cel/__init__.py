"""CEL, the language of device selectors, as the API server compiles and evaluates it.

In: an expression and a device. Out: whether the device matches, or a SelectorError. Text becomes a tree (`syntax`), the
tree is checked and becomes closures (`program`) over `functions`, `libraries` and `values`; regular expressions run in
linear time (`regex`). Begin with `selectors.matches`. A table of the functions is in docs/cel.md.
"""
