"""Leader election by a Lease: one of several replicas writes.

`election` is client-go's algorithm as a machine, `elector` runs it in a thread, `lease` reads and writes the Lease, and
`fence` stands before every write. The lease comes in; the answer to "do I lead?" goes out. Begin with `election`.
"""
