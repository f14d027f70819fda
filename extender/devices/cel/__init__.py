"""Compiles and evaluates CEL, the language of device selectors, in the same way as the API server.

In: an expression and a device. Out: whether the device matches, or a SelectorError. `syntax` parses text into `nodes`;
`program` turns them into closures that call the functions in `library`. Start reading at `selectors.matches`. The
functions are listed in docs/cel.md.
"""
