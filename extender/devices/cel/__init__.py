"""CEL, the language of device selectors, as the API server compiles and evaluates it.

In: an expression and a device. Out: whether the device matches, or a SelectorError. `syntax` parses text into `nodes`,
`program` makes closures of them, over the functions in `library`.
Begin with `selectors.matches`. A table of the functions is in docs/cel.md.
"""
