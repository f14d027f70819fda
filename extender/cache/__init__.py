"""The assumed-pod cache: the cluster as the watches show it, with what was decided since.

In: watch events and lists, and the decisions of verbs and scheduler: assumed pods, nominations, assumed objects. Out:
tables on loan to readers, and notifications to a listener, the scheduling queue. Tables follow the journal in
`changes`. Start with `cache.Cache`; `pod_states` draws the life of an assumed pod. Source: upstream backend/cache.
"""
