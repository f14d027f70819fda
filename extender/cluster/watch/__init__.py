"""Lists and watches every kind, and delivers the objects to a sink, which is the cache.

A reflector does this for one kind: `list_watch_state` is its state machine, `reflector` handles the bytes of its lists
and watches, `source` runs a thread for each reflector. `survey` checks that watches deliver everything, `paging` lists
a whole kind, `api_objects` decodes. Bytes of the API server come in; objects go to the sink in the order of their
versions. Start with `list_watch_state`.
"""
