"""Reflectors: lists and watches of every kind, told to a sink, which is the cache.

`list_watch_state` is the machine of one kind, `reflector` feeds it with bytes, `source` runs one reflector a thread.
`survey` sees to it that what a watch tells is the truth, `paging` lists a kind whole. Bytes of the
API server come in; objects go to the sink, in the order of their versions. Begin with `list_watch_state`.
"""
