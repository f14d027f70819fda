"""Keeps the state of the cluster: what the watches show, plus decisions that the watches do not show yet.

Watch events and lists come in, and so do the decisions of the verbs and the scheduler: assumed pods, nominations, and
assumed objects. Readers borrow tables of this state. The scheduling queue is notified of every change.
`changes` holds a journal of the changes, from which the tables are updated. Start with `cache.Cache`; `pod_states`
draws the life of an assumed pod. Source: upstream backend/cache.
"""
