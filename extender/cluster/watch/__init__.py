"""Reflectors: list and watch every kind, and deliver the objects to a sink, which is the cache.

`list_watch_state` is the state machine of one kind, `reflector` feeds it with bytes, `source` runs a thread for each
reflector. `survey` checks that watches deliver everything, `paging` lists a whole kind, `api_objects` decodes. Bytes
of the API server come in; objects go to the sink in the order of their versions. Start with `list_watch_state`.
"""
