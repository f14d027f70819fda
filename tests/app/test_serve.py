"""What `extender serve` refuses before it serves, and rules that change while it does."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec
import pytest
from werkzeug.test import Client, TestResponse

from extender import Cluster
from extender.app import upkeep
from extender.app.feed import feed_factory_of
from extender.app.serve import application, serve
from extender.config.settings import Settings, load
from extender.errors import ConfigurationError
from extender.runtime.unsettled import UnsettledWrites
from extender.web import worker
from tests.stock.waiting import wait_until

pytestmark = pytest.mark.processes

EXAMPLE = Path(__file__).parents[2] / "extender" / "offline" / "example.yaml"


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    served: list[Settings] = []
    monkeypatch.setattr(worker, "serve", lambda settings, _: served.append(settings))
    return served


def settings(**fields: object) -> Settings:
    return Settings.model_validate({"cluster": EXAMPLE, **fields})


@pytest.mark.parametrize("bind", ["0.0.0.0:1", "[::]:1", "10.0.0.1:1", "node-1:1"])
def test_beyond_loopback_it_requires_a_certificate_or_a_flag(served: list[Settings], bind: str) -> None:
    with pytest.raises(ConfigurationError, match=r"bind: .* is not a loopback address"):
        serve(settings(bind=bind))
    assert served == []
    serve(settings(bind=bind, insecure_bind=True))
    serve(settings(bind=bind, tls_cert="cert.pem", tls_key="key.pem"))
    assert len(served) == 2


@pytest.mark.parametrize("bind", ["127.0.0.1:1", "[::1]:1", "localhost:1"])
def test_on_loopback_it_needs_none(served: list[Settings], bind: str) -> None:
    serve(settings(bind=bind))
    assert len(served) == 1


@pytest.mark.parametrize(("names", "warned"), [((), True), (("system:kube-scheduler",), False)])
def test_a_client_ca_without_names_is_warned_of(
    served: list[Settings], capfd: pytest.CaptureFixture[str], names: tuple[str, ...], warned: bool
) -> None:
    serve(settings(tls_cert="c", tls_key="k", client_ca="ca", client_names=names))
    assert ("because clientNames is not set" in "".join(capfd.readouterr())) is warned
    assert len(served) == 1


PAINTERS = """from extender import PodInfo, Rows, Table, predicate


@predicate(sees_pods=True)
def one_painter(pod: PodInfo, table: Table, rows: Rows) -> object:
    return rows >= 0
"""
ALL, PREEMPTION = ({"disabled": [{"name": name}]} for name in ("*", "DefaultPreemption"))
ONE_RULE = {"enabled": [{"name": "painters:one_painter"}]}


@pytest.mark.parametrize(
    ("plugins", "starts"),
    [
        pytest.param({}, True, id="all in-tree plugins"),
        pytest.param({"multiPoint": ALL}, True, id="rules alone"),
        pytest.param(
            {"multiPoint": ALL, "postFilter": {"enabled": [{"name": "DefaultPreemption"}]}}, True, id="enabled"
        ),
        pytest.param({"multiPoint": PREEMPTION}, False, id="only DefaultPreemption is disabled"),
        pytest.param({"postFilter": ALL}, False, id="postFilter is disabled"),
    ],
)
def test_preemption_for_rules_does_not_start_with_a_policy_that_turns_it_off(
    served: list[Settings], tmp_path: Path, plugins: dict[str, object], starts: bool
) -> None:
    (tmp_path / "painters.py").write_text(PAINTERS)
    profile = {"schedulerName": "default-scheduler", "plugins": {**plugins, "filter": ONE_RULE}}
    header = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    policy = tmp_path / "policy.yaml"
    policy.write_text(json.dumps({**header, "profiles": [profile]}))
    serve(settings(policy=policy))
    if not starts:
        with pytest.raises(ConfigurationError, match="preemptForRules: no pod could be evicted"):
            serve(settings(policy=policy, preempt_for_rules=True))
    else:
        serve(settings(policy=policy, preempt_for_rules=True))
    assert len(served) == 1 + starts


def test_no_verb_takes_the_place_of_a_page() -> None:
    app = application(settings(simulate=True), feed_factory_of(settings()), UnsettledWrites(10.0))
    pages = [rule.rule for rule in app.url_map.iter_rules() if not rule.rule.startswith("/scheduler/")]
    assert {"/metrics", "/simulate", "/configz"} <= set(pages)
    taken = {page for page in pages if page.rsplit("/", 1)[-1] in ("filter", "prioritize", "preempt", "bind")}
    assert taken == set()
    for folder in {page.rsplit("/", 1)[0] for page in pages} - {""}:
        with pytest.raises(ConfigurationError, match="is already used by the extender"):
            load(None, {}, {"prefix": folder})


POLICY = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{plugins: {filter: {enabled: [{name: "served_rules:rule"}]}}}]
"""
RULE = "from extender import predicate\n\n@predicate\ndef rule(pod, node):\n    return %r\n"


class Serving:
    """The application on the shipped cluster, with a policy that is looked at again and again."""

    def __init__(self, folder: Path, **fields: object) -> None:
        self.folder = folder
        self.write("policy.yaml", POLICY)
        self.write("served_rules.py", RULE % "first")
        always = {"policy": folder / "policy.yaml", "decision_seconds": 1.0}
        self._settings = settings(**always, **fields)
        self.app = application(self._settings, feed_factory_of(self._settings), UnsettledWrites(10.0))
        self.client = Client(self.app)
        self.pod = json.loads(msgspec.json.encode(Cluster.load(EXAMPLE).pod("shop/web-6d5f8-m7d3x")))

    def write(self, name: str, text: str) -> None:
        (self.folder / f"{name}.new").write_text(text)
        (self.folder / f"{name}.new").rename(self.folder / name)

    def call(self, verb: str) -> TestResponse:
        return self.client.post(f"/scheduler/{verb}", json={"Pod": self.pod, "NodeNames": ["general-a1"]})

    def counts(self, sample: str) -> bool:
        return sample in self.client.get("/metrics").text

    def reasons(self) -> set[str]:
        answer = self.call("filter").json
        assert answer is not None
        return {*answer["FailedNodes"].values(), *answer["FailedAndUnresolvableNodes"].values()}

    def metric(self, sample: str) -> str:
        lines = self.client.get("/metrics").text.splitlines()
        return next((line.rpartition(" ")[2] for line in lines if line.startswith(f"{sample} ")), "")


@pytest.fixture
def serving(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serving]:
    monkeypatch.setattr(upkeep, "POLICY_SECONDS", 0.02)
    path = list(sys.path)
    made = Serving(tmp_path, **getattr(request, "param", {}))
    made.app.lifecycle.start()
    yield made
    made.app.lifecycle.stop()
    sys.path[:] = path
    sys.modules.pop("served_rules", None)


def test_rules_that_have_changed_decide_the_next_call(serving: Serving) -> None:
    assert serving.reasons() == {"first"}
    serving.write("served_rules.py", RULE % "other")
    assert wait_until(lambda: serving.reasons() == {"other"})
    assert serving.metric('extender_policy_reloads_total{result="success"}') == "1.0"


@pytest.mark.parametrize(
    ("file", "text"),
    [
        pytest.param("served_rules.py", "import sys\nsys.exit()\n", id="what does not load"),
        pytest.param(
            "policy.yaml", f"{POLICY}featureGates: {{DRAFractionalCapacityRange: true}}\n", id="what needs a restart"
        ),
    ],
)
def test_rules_that_cannot_be_adopted_change_nothing(serving: Serving, file: str, text: str) -> None:
    serving.write(file, text)
    assert wait_until(lambda: serving.metric("extender_policy_last_reload_successful") == "0.0")
    assert serving.metric('extender_policy_reloads_total{result="failure"}') == "1.0"
    assert serving.reasons() == {"first"}
    assert serving.client.get("/livez").status_code == 200


FAILING = "from extender import predicate, priority\n\n{decorator}\ndef rule(pod, node{more}):\n    {body}\n"
WITH_PRIORITY = POLICY.replace("filter", "score")


@pytest.mark.parametrize(
    ("policy", "decorator", "more", "body", "reason"),
    [
        pytest.param(
            POLICY, "@predicate", "", "return pod.lables == 1",
            "served_rules:rule fails: served_rules.py:5: AttributeError: 'Pod' object has no attribute 'lables' "
            "(did you mean labels?) (tried with the pod ",
            id="raises for every pod",
        ),
        pytest.param(
            POLICY, "@predicate", "", "return {}[node.name] if pod.labels.get('tier') == 'front' else True",
            "served_rules:rule fails: served_rules.py:5: KeyError: '",
            id="raises for some pods",
        ),
        pytest.param(
            WITH_PRIORITY, "@priority", "", "return 'much'",
            "served_rules:rule fails: served_rules.py:3: TypeError: a priority must return a number for each of ",
            id="a priority without a number",
        ),
        pytest.param(
            POLICY, "@predicate", ", *, handle", "return 1 / handle.count_placed(None, {}) > 0",
            "served_rules:rule fails: served_rules.py:5: ZeroDivisionError: division by zero (tried with the pod ",
            id="raises for nodes that a call describes",
        ),
        pytest.param(
            POLICY, "@predicate", "", "import threading; threading.Event().wait(20)",
            "no decision within 1 s: served_rules:rule has not answered (tried with the pod ",
            id="does not answer",
        ),
    ],
)  # fmt: skip
def test_rules_that_fail_for_the_pods_of_the_cluster_are_not_adopted(
    serving: Serving, policy: str, decorator: str, more: str, body: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    serving.write("served_rules.py", FAILING.format(decorator=decorator, more=more, body=body))
    serving.write("policy.yaml", policy)
    assert wait_until(lambda: any("not adopted" in each and reason in each for each in caplog.messages))
    assert wait_until(lambda: serving.metric("extender_policy_last_reload_successful") == "0.0")
    assert serving.reasons() == {"first"}
    assert not [each for each in caplog.records if "rule failed" in each.getMessage()]
    serving.write("policy.yaml", POLICY)
    serving.write("served_rules.py", RULE % "other")
    assert wait_until(lambda: serving.reasons() == {"other"})


def test_a_rule_that_fails_where_the_one_before_fails_too_is_adopted(serving: Serving) -> None:
    flag = serving.folder / "flag"
    body = f"import os; assert not os.path.exists({str(flag)!r}); return {{!r}}"
    for answer in ("first", "other"):
        serving.write(
            "served_rules.py", FAILING.format(decorator="@predicate", more="", body=body.format(f"{answer} again"))
        )
        reloads = f'extender_policy_reloads_total{{result="success"}} {1 + flag.exists()}.0'
        assert wait_until(partial(serving.counts, reloads))
        flag.write_text("")


LEFT_OUT = """\
import os, time
from extender import predicate

@predicate
def rule(pod, node):
    while os.path.exists({hangs!r}):
        time.sleep(0.01)
    return "first" if not os.path.exists({fails!r}) else 1 / 0
"""
IGNORING = pytest.mark.parametrize("serving", [{"on_rule_failure": "ignore"}], indirect=True)


@IGNORING
@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        pytest.param("fails", "served_rules.py:8: ZeroDivisionError: division by zero", id="raises"),
        pytest.param("hangs", "no decision within 0.5 s: served_rules:rule has not answered", id="hangs"),
    ],
)
def test_answers_go_on_without_a_rule_that_fails_and_say_so(
    serving: Serving, failure: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    flags = {name: serving.folder / name for name in ("fails", "hangs")}
    serving.write("served_rules.py", LEFT_OUT.format(**{name: str(path) for name, path in flags.items()}))
    assert wait_until(lambda: serving.metric('extender_policy_reloads_total{result="success"}') == "1.0")
    assert "Warning" not in serving.call("filter").headers
    flags[failure].touch()
    try:
        for number in (1, 2):
            answer = serving.call("filter")
            assert answer.json is not None
            assert (answer.json["NodeNames"], answer.json["Error"]) == (["general-a1"], "")
            assert answer.headers["Warning"].startswith('199 extender "decided without served_rules:rule: ')
            assert number == 2 or answer.headers["Warning"].endswith(f': {reason}"')
        assert float(serving.metric('extender_rule_failures_total{rule="served_rules:rule"}')) >= 2
        [message] = [each.getMessage() for each in caplog.records if "rule failed" in each.getMessage()]
        assert "pods are placed without it" in message
    finally:
        flags[failure].unlink()


@pytest.mark.parametrize("thread", ["memory", "collector"])
def test_it_looks_after_its_memory_as_long_as_it_serves(serving: Serving, thread: str) -> None:
    assert thread in {each.name for each in threading.enumerate()}
    serving.app.lifecycle.stop()
    assert thread not in {each.name for each in threading.enumerate()}
