"""CEL, the language of device selectors, as the API server compiles and evaluates it.

In: an expression and a device. Out: whether the device matches, or a SelectorError. `syntax` parses text into `nodes`,
`program` makes closures of them, over `functions`, `lists`, `libraries` and `values`; `regex` is linear.
Begin with `selectors.matches`. A table of the functions is in docs/cel.md.
"""
