"""Lists and watches every kind, and delivers the objects to a sink, which is the cache.

Each kind has a reflector. `list_watch_state` is the reflector's state machine, `reflector` handles the bytes of lists
and watches, and `source` runs a thread for each reflector. `survey` checks that the watches deliver everything, and
`api_objects` lists all objects of a kind and decodes them. The objects go to the sink in the order of their versions.
Start with `list_watch_state`.
"""
