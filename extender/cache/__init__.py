"""Keeps the state of the cluster: what the watches show, plus decisions that the watches do not show yet.

Input: watch events, lists, and the decisions of the verbs and the scheduler (assumed pods, nominations, assumed
objects). Output: tables that readers borrow, and notifications to a listener, the scheduling queue. Tables are updated
from the journal in `changes`. Start with `cache.Cache`; `pod_states` draws the life of an assumed pod. Source: upstream
backend/cache.
"""
