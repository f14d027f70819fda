"""The assumed-pod cache (upstream backend/cache): everything that the watches have told and that was decided since.

In: watch events, lists, and what verbs and scheduler decide: assumed pods, nominations, assumed objects. Out: tables
that are lent to readers, and notifications to a listener, the queue. Everything that changes goes through one journal,
`changes`, which the tables follow. Begin with `cache.Cache`; the life of an assumed pod is drawn in `pod_states`.
"""
