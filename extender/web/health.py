"""Liveness and readiness in the form of Kubernetes (k8s.io/apiserver healthz): `ok`, or every check with its state."""

from __future__ import annotations

from collections.abc import Mapping

from extender.web.answers import Answer

_TEXT = "text/plain; charset=utf-8"


def health_answer(endpoint: str, checks: Mapping[str, str], verbose: bool) -> Answer:
    """`checks` by name: "" is passed, a text says what is missing. 200 `ok`, or 503 with the checks listed."""
    failed = any(checks.values())
    if not failed and not verbose:
        return Answer(200, b"ok", _TEXT)
    lines = [f"[-]{name} failed: {missing}" if missing else f"[+]{name} ok" for name, missing in checks.items()]
    lines.append(f"{endpoint} check {'failed' if failed else 'passed'}")
    return Answer(503 if failed else 200, "".join(line + "\n" for line in lines).encode(), _TEXT)
