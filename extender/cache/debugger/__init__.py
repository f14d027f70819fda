"""Looks at the cache from outside (upstream backend/cache/debugger).

`Comparer` holds the cache against a fresh list and every table against one made anew, and puts right what differs;
`dump` writes down all that the cache counts. Begin with comparer.
"""
