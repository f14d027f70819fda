"""What a reader of pages costs the webhook: `python -m tests.faults.readers` calls filter beside each page.

The pages are about a gang of two billion members, and about a pod whose claim cannot be decided in minutes.
"""

from __future__ import annotations

import http.client
import json
import tempfile
import threading
import time
from pathlib import Path

from tests.builders import make_pod
from tests.cli.test_timeout import NOT_BUILT, gang, hard_cluster, member
from tests.faults.mortal import MortalExtender
from tests.faults.serving import on_snapshot

QUESTIONS = {
    "nothing": None,
    "the page of a gang of two billion": "/ui/group.json?group=default/g",
    "the page of a pod with a hard claim": "/ui/pod.json?pod=ml/p",
    "the list of pending pods": "/ui/pending.json",
}
_PAUSE_SECONDS = 0.05
_BODY = json.dumps({"Pod": make_pod("asked").obj(), "NodeNames": ["n"]})


def main() -> None:
    cluster = json.loads(hard_cluster())
    cluster["items"] += [gang(NOT_BUILT), member("a")]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "cluster.json")
        path.write_text(json.dumps(cluster))
        with on_snapshot(Path(folder), path, "--decision-seconds=0") as extender:
            for name, page in QUESTIONS.items():
                print(f"{name}: {_measured(extender, page)}")


def _measured(extender: MortalExtender, page: str | None) -> str:
    answer: list[str] = []
    reader = threading.Thread(target=lambda: answer.append(_read(extender.port, page)))
    began, longest, calls, most = time.monotonic(), 0.0, 0, 0
    reader.start()
    connection = http.client.HTTPConnection("127.0.0.1", extender.port, timeout=30)
    while reader.is_alive() or calls < 20:
        asked = time.perf_counter()
        connection.request("POST", "/scheduler/filter", _BODY, {"Content-Type": "application/json"})
        connection.getresponse().read()
        longest, calls = max(longest, time.perf_counter() - asked), calls + 1
        most = max(most, extender.resident_bytes())
        time.sleep(_PAUSE_SECONDS)
    connection.close()
    seconds = time.monotonic() - began
    return (
        f"{answer[0]} after {seconds:.1f} s; the slowest of {calls} filter calls took {1000 * longest:.0f} ms;"
        f" the worker had at most {most >> 20} MiB"
    )


def _read(port: int, page: str | None) -> str:
    if page is None:
        return "no answer"
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    connection.request("GET", page)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return f"{answer.status} {body[:120].decode()!r}" if answer.status != 200 else f"200 with {len(body)} bytes"


if __name__ == "__main__":
    main()
