"""The rules of a process: read from a file, a ConfigMap or a provider, and read again while it runs.

In: settings. Out: a `Policy`, and later another one, validated whole, for the process to adopt. Begin with `sources`.
"""

from extender.app.policies.sources import log_failure, policy_of, policy_text, profiles_of

__all__ = ["log_failure", "policy_of", "policy_text", "profiles_of"]
