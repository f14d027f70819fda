"""The complete output of every command and page, compared with the files in `golden/`; `make golden` rewrites them.

A change of wording, of an order or of a table shows up in review as a change of these files.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import click
import msgspec
import pytest

from extender.app.live_pages import look_at_cluster, look_at_recording, providers
from extender.cli.main import cli, main
from extender.offline.state import ClusterState
from extender.ui import Choices, Site
from extender.web.access import UI
from extender.web.answers import Answer
from extender.web.app import PageServer, PrivatePages
from tests.app.test_doctor import Installation
from tests.builders import make_node, make_pod
from tests.cli.test_status import PICTURE
from tests.cluster.fake_api import PODS, fake_api

GOLDEN = Path(__file__).parent / "golden"
ROOT = Path(__file__).parents[2]
REWRITES = "REWRITE_GOLDEN" in os.environ

WIDTH = 120
EXAMPLE = "--cluster example.yaml"
HARD = "--cluster hard.yaml"
GROUPS = "--cluster groups.yaml"
DEVICES = "--cluster devices.yaml"
APP = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: extra, namespace: shop}
spec:
  replicas: 2
  selector: {matchLabels: {app: extra}}
  template:
    metadata: {labels: {app: extra}}
    spec:
      containers: [{name: c, image: extra, resources: {limits: {cpu: 500m}, requests: {memory: 1Gi}}}]
"""
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: single}
spec:
  containers: [{name: c, image: single, resources: {requests: {cpu: "1"}}}]
"""
INDEX = """\
apiVersion: v1
kind: Pod
metadata: {name: index, namespace: shop}
spec:
  nodeSelector: {node.kubernetes.io/instance-type: general-8}
  containers: [{name: c, image: index, resources: {requests: {cpu: 7500m, memory: 8Gi}}}]
"""
NEXT_POLICY = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 1}]}}
"""
PACKING = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins: {score: {enabled: [{name: DeviceScoring, weight: 100}]}}
  pluginConfig: [{name: DeviceScoring, args: {policies: [{name: FGD}]}}]
"""
SHARE = """\
apiVersion: v1
kind: Pod
metadata: {name: share, namespace: ml}
spec:
  containers: [{name: c, image: share, resources: {requests: {cpu: "1"}, claims: [{name: gpu}]}}]
  resourceClaims: [{name: gpu, resourceClaimTemplateName: share}]
"""
FAULTY_POD = """\
apiVersion: v1
kind: Pod
metadata: {name: faulty}
spec:
  containers: [{name: c, image: i, resources: {requests: {cpu: lots}}}]
  tolerations: [{operator: Exist}]
  nodeselector: {a: b}
"""
CASES = """\
{"name": "fits", "cluster": {"items": [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, \
"status": {"allocatable": {"cpu": "2", "memory": "4Gi", "pods": "10"}}}]}, \
"pod": {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}
{"name": "not a pod", "cluster": {"items": []}, "pod": {"kind": "Node"}}
"""

HARD_PODS = ("urgent", "devices", "volumes", "spread", "ports", "affinity", "gated", "foreign")
OUTPUTS: Mapping[str, Sequence[str]] = {
    "explain-example": (
        f"explain {EXAMPLE}",
        f"explain {EXAMPLE} -n reports",
        f"explain {EXAMPLE} -n empty",
        f"explain ml/recommend-7f6d-v4nzs {EXAMPLE}",
        f"explain ml/recommend-7f6d-v4nzs {EXAMPLE} --no-changes",
        f"explain data/warehouse-0 {EXAMPLE} --node gpu-a1",
        f"explain shop/api-58b9c-w8x5n {EXAMPLE} --nodes",
        f"explain -f app.yaml {EXAMPLE}",
    ),
    "explain-example-json": (f"explain ml/recommend-7f6d-v4nzs {EXAMPLE} -o json",),
    "explain-example-yaml": (f"explain {EXAMPLE} -o yaml",),
    "explain-groups": (
        f"explain {GROUPS}",
        f"explain podgroup/train -n ml {GROUPS}",
        f"explain ml/podgroup/train {GROUPS} -o json --no-changes",
        f"explain train-4 -n ml {GROUPS}",
        f"explain podgroup/missing -n ml {GROUPS}",
        f"explain podgroup/trian -n ml {GROUPS}",
        f"explain podgroup/train/x/y {GROUPS}",
        f"explain podgroup/train -n ml {GROUPS} --nodes",
    ),
    "explain-hard": (
        f"explain {HARD}",
        *(f"explain work/{name} {HARD}" for name in HARD_PODS),
        f"explain work/batch-1 {HARD}",
        f"explain work/urgent {HARD} --nodes",
        f"explain work/affinity {HARD} --node n1",
    ),
    "devices": (
        f"explain {DEVICES}",
        f"explain ml/embed-4 {DEVICES}",
        f"explain ml/embed-4 {DEVICES} --policy packing.yaml",
        f"explain ml/train-1 {DEVICES}",
        f"simulate {DEVICES}",
        f"simulate {DEVICES} --policy packing.yaml",
        f"capacity {DEVICES} -f share.yaml",
        f"capacity {DEVICES} -f share.yaml -o json",
    ),
    "explain-batch": ("explain --batch < cases.jsonl",),
    "simulate": (
        f"simulate {EXAMPLE}",
        f"simulate {EXAMPLE} -o json",
        f"simulate {EXAMPLE} --drain general-a2 --cordon general-a1",
        f"simulate {EXAMPLE} -f app.yaml --replicas 30 --add-node general-a1=1",
        f"simulate {EXAMPLE} --remove-node general-a2 --scale shop/deploy/web=6 --delete ml/recommend-7f6d-v4nzs",
        f"simulate {HARD}",
        f"simulate {HARD} --drain n1",
        f"simulate {HARD} --remove-node n2",
    ),
    "capacity": (
        f"capacity {EXAMPLE} -f app.yaml",
        f"capacity {EXAMPLE} -f app.yaml -f pod.yaml --weight 3 --weight 1 --most 20",
        f"capacity {HARD} -f pod.yaml",
        f"capacity {HARD} -f pod.yaml -o json",
    ),
    "plan": (
        f"plan {EXAMPLE} -f index.yaml",
        f"plan {EXAMPLE} -f index.yaml --max-moves 1",
        f"plan {EXAMPLE} -f index.yaml -o json",
        f"plan {EXAMPLE} -f index.yaml --script",
        f"plan {EXAMPLE} data/warehouse-0",
        f"plan {EXAMPLE} shop/web-6d5f8-m7d3x",
        f"plan {HARD} work/spread --keep work",
        f"plan {EXAMPLE}",
        f"plan {EXAMPLE} -f index.yaml --keep a=b=c",
        f"plan {EXAMPLE} -f index.yaml --script -o json",
        f"plan {EXAMPLE} shop/web-6d5f8-2xk7d",
        f"plan {EXAMPLE} podgroup/none",
        f"plan {EXAMPLE} --defrag '24Gi x memory on one node' --max-moves 4",
        f"plan {EXAMPLE} --empty general-a1",
        f"plan {EXAMPLE} --empty topology.kubernetes.io/zone=eu-1b --count 2",
        f"plan {EXAMPLE} --empty general-a1,gpu-a1",
        f"plan {EXAMPLE} --empty general-a1 --defrag pod.yaml",
        f"plan {EXAMPLE} --count 99",
        f"plan {EXAMPLE} --defrag podgroup/none",
    ),
    "compare": (
        f"compare {EXAMPLE} --policy next.yaml",
        f"compare {HARD} --policy next.yaml --max-pending 0 --max-moved 0",
        f"compare {HARD} --policy next.yaml -o json",
    ),
    "rule": (
        "rule new team_nodes",
        "rule new team_nodes",
        "rule new class",
        "rule new json --folder rules",
        f"rule test team_nodes.py {HARD}",
        f"rule test team_nodes.py {HARD} --arg label=example.com/zone",
        f"rule test team_nodes.py {HARD} --arg colour=red",
        f"explain work/team {HARD} --policy policy.yaml",
    ),
    "replay": (
        "replay recording.jsonl.gz --steps",
        "replay recording.jsonl.gz",
        "replay recording.jsonl.gz --policy next.yaml",
        "upgrade-check recording.jsonl.gz --to 1.36",
        "upgrade-check recording.jsonl.gz --to 1.20",
        "upgrade-check recording.jsonl.gz --to Nothing=true",
    ),
    "errors": (
        "explain x",
        f"explain nobody {EXAMPLE}",
        f"explain shop/web-6d5f8-m7d3 {EXAMPLE}",
        f"explain shop/pods/web/extra {EXAMPLE}",
        f"explain shop/web-6d5f8-m7d3x {EXAMPLE} --node general-a9",
        f"explain -f faulty.yaml {EXAMPLE}",
        f"explain -f missing.yaml {EXAMPLE}",
        f"explain -f next.yaml {EXAMPLE}",
        "explain --cluster missing.yaml",
        "explain --cluster app.yaml",
        "explain --cluster text.txt",
        f"explain shop/web-6d5f8-m7d3x -f pod.yaml {EXAMPLE}",
        f"explain --nodes {EXAMPLE}",
        f"explain --from http://127.0.0.1:9 {EXAMPLE}",
        "explain --from 127.0.0.1:9",
        f"explain {EXAMPLE} --context c",
        f"simulate {EXAMPLE} --scale web=3",
        f"simulate {EXAMPLE} --scale shop/deploy/nothing=3",
        f"simulate {EXAMPLE} --scale deploy/web=3",
        f"simulate {EXAMPLE} --drain zone=nowhere",
        f"simulate {EXAMPLE} --add-node general-a9",
        f"simulate {EXAMPLE} --add-node =3",
        f"simulate {EXAMPLE} --replicas 3",
        f"simulate {EXAMPLE} --delete shop/web",
        f"capacity {EXAMPLE}",
        f"capacity {EXAMPLE} -f app.yaml -f app.yaml",
        f"capacity {EXAMPLE} -f app.yaml --weight 1 --weight 2",
        f"compare {EXAMPLE}",
        "view --recording recording.jsonl.gz --cluster example.yaml",
        "view --recording app.yaml",
        "replay app.yaml",
        f"explain {EXAMPLE} --policy app.yaml",
        f"rule test app.yaml {EXAMPLE}",
        "status --server http://127.0.0.1:9",
        "status --server nowhere://",
        "doctor",
        "doctor --url ftp://x",
        "doctor --url http://x --lease lease",
        "certs pki --days 1000",
        "snapshot --cluster example.yaml",
    ),
    "version": ("version", "--version"),
    "reference": tuple(f"reference {topic}" for topic in ("endpoints", "policy-names", "log")),
    "demo": ("demo filter", "demo bind"),
}
PAGES: Mapping[str, Sequence[str]] = {
    "page-pending": ("pending",),
    "page-pod": ("pod?pod=ml/recommend-7f6d-v4nzs", "pod?pod=shop/api-58b9c-w8x5n"),
    "page-nodes": ("nodes", "nodes?pod=ml/recommend-7f6d-v4nzs", "nodes?find=gpu&by=memory"),
    "page-node": ("node?node=gpu-a1", "node?node=gpu-a1&pod=ml/recommend-7f6d-v4nzs"),
    "page-devices": ("node?node=gpu-a1", "pod?pod=ml/embed-4", "pod?pod=ml/train-1"),
    "page-compare": ("compare?with=ClusterAutoscalerProvider",),
    "page-errors": ("pod?pod=shop/nobody", "pod", "node?node=nowhere", "compare?with=nothing", "steps", "nodes?from=x"),
}
FILES: Mapping[str, str] = {
    "file-explain": f"explain ml/recommend-7f6d-v4nzs {EXAMPLE} -o html",
    "file-explain-list": f"explain {EXAMPLE} -o html",
    "file-simulate": f"simulate {EXAMPLE} --drain general-a2 -o html",
    "file-capacity": f"capacity {EXAMPLE} -f app.yaml -o html",
    "file-compare": f"compare {EXAMPLE} --policy next.yaml -o html",
}


def masked(text: str) -> str:
    """Returns the text with everything masked that differs from run to run: times, ages, versions, ports, paths."""
    for pattern, mask in (
        (re.escape(str(Path.cwd())), "<directory>"),
        (re.escape(str(ROOT)), "<project>"),
        (r"\b\d{4}-\d\d-\d\d([T ])\d\d:\d\d:\d\d", r"YYYY-MM-DD\1hh:mm:ss"),
        (r"\b\d{4}-\d\d-\d\d\b(?=  )", "YYYY-MM-DD"),
        (r"\b[\d.]+ us per node", "<n> us per node"),
        (r"\b[\d.]+ ms\b", "<n> ms"),
        (r"(?<=  )(\d\d[smhd]|\d[smhd] )(?= +\S)", "<n>"),
        (r"(?<=127\.0\.0\.1:)\d{5}\b", "<port>"),
        (r"(?<=extender )\d+\.\d+\.\d+\S*", "<version>"),
        (r"\(commit \w+\)", "(commit <commit>)"),
    ):
        text = re.sub(pattern, mask, text)
    return text


def compare(name: str, text: str) -> None:
    """Compares the text with the golden file, or writes the file."""
    path = GOLDEN / f"{name}.txt"
    if REWRITES:
        path.write_text(masked(text))
    assert masked(text) == path.read_text()


def run(command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> str:
    """Runs the command in this process; returns its command line, both streams, and its exit status."""
    arguments, _, given = command.partition(" < ")
    stdin = io.BytesIO(Path(given).read_bytes() if given else b"")
    monkeypatch.setattr(sys, "argv", ["extender", *shlex.split(arguments)])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(stdin))
    with pytest.raises(SystemExit) as ended:
        main()
    printed = capsys.readouterr()
    errors = "".join(f"stderr: {line}\n" for line in printed.err.splitlines())
    status = f"exit status: {ended.value.code}\n" if ended.value.code else ""
    return f"$ extender {command}\n{printed.out}{errors}{status}"


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    shutil.copy(ROOT / "extender/offline/example.yaml", tmp_path / "example.yaml")
    shutil.copy(GOLDEN / "hard.yaml", tmp_path)
    shutil.copy(ROOT / "examples/devices.yaml", tmp_path)
    shutil.copy(ROOT / "examples/pod-groups.yaml", tmp_path / "groups.yaml")
    shutil.copy(ROOT / "tests/recordings/served.jsonl.gz", tmp_path / "recording.jsonl.gz")
    contents = {
        "app.yaml": APP,
        "index.yaml": INDEX,
        "pod.yaml": POD,
        "next.yaml": NEXT_POLICY,
        "packing.yaml": PACKING,
        "share.yaml": SHARE,
        "faulty.yaml": FAULTY_POD,
        "cases.jsonl": CASES,
        "text.txt": "just text\n",
    }
    for name, content in contents.items():
        (tmp_path / name).write_text(content)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    monkeypatch.setenv("KUBECONFIG", "missing.kubeconfig")
    monkeypatch.setattr(sys.modules["__main__"], "__package__", "", raising=False)  # else it is named in a usage line
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.syspath_prepend(ROOT)
    yield tmp_path
    sys.modules.pop("team_nodes", None)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.thorough] * (name == "plan")) for name in OUTPUTS]
)
def test_a_command_prints_what_is_kept(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "plan":
        pytest.importorskip("highspy", reason="without the solver of `extender plan` it says so instead")
    compare(name, "\n".join(run(command, capsys, monkeypatch) for command in OUTPUTS[name]))


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yields the path of every command."""
    yield path
    for name, command in sorted(group.commands.items()):
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name)


@pytest.mark.parametrize("path", list(commands(cli)), ids=lambda path: "-".join(path) or "extender")
def test_the_help_is_what_is_kept(
    path: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    compare("-".join(("help", *path)), run(" ".join((*path, "--help")), capsys, monkeypatch))


class PageText(HTMLParser):
    """The text of a page as a reader sees it: a line for each block, cells side by side, titles in brackets."""

    BLOCKS = ("tr", "p", "h1", "h2", "h3", "li", "div", "form", "nav", "summary", "figcaption", "title", "dt", "footer")

    def __init__(self, page: str) -> None:
        super().__init__()
        self._parts: list[str] = []
        self._skipped = 0
        self.feed(page)

    @property
    def text(self) -> str:
        lines = (re.sub(r"\s+", " ", line).strip(" |") for line in "".join(self._parts).split("\0"))
        return "".join(f"{line}\n" for line in lines if line)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self._skipped += tag in ("style", "script", "pre")
        if tag in self.BLOCKS:
            self._parts.append("\0")
        elif tag in ("td", "th"):
            self._parts.append(" | ")
        elif tag in ("span", "small", "br", "option", "button"):
            self._parts.append(" ")
        values = dict(attributes)
        self._parts += [f" [{values[name]}] " for name in ("title", "placeholder", "aria-label") if values.get(name)]

    def handle_endtag(self, tag: str) -> None:
        self._skipped -= tag in ("style", "script", "pre")
        self._parts += ["\0"] if tag in self.BLOCKS else []

    def handle_data(self, data: str) -> None:
        if not self._skipped:
            self._parts.append(data)


def page_text(site: Site, address: str) -> str:
    parts = urlsplit(address)
    answer = site.pages()[f"{UI}/{parts.path}"](parse_qs(parts.query), "")
    return f"GET {UI}/{address} -> {answer.status}\n{PageText(answer.body.decode()).text}"


@pytest.mark.parametrize("name", PAGES)
def test_a_page_says_what_is_kept(name: str) -> None:
    cluster = "devices.yaml" if name == "page-devices" else "example.yaml"
    look = look_at_cluster(ClusterState.load(Path(cluster)), cluster, ["pods could not be read"])
    site = Site(look, Choices(others=providers()))
    compare(name, "\n".join(page_text(site, address) for address in PAGES[name]))


def test_the_pages_of_a_recording_say_what_is_kept() -> None:
    site = Site(look_at_recording(Path("recording.jsonl.gz"), None), Choices("the recording's", providers()))
    compare("page-recording", "\n".join(page_text(site, address) for address in ("steps?step=5", "pending?step=3")))


@pytest.mark.parametrize("name", FILES)
def test_a_page_in_a_file_says_what_is_kept(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    compare(name, PageText(run(FILES[name], capsys, monkeypatch)).text)


def test_status_prints_what_is_kept(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    picture = Answer(200, msgspec.json.encode(PICTURE))
    server = PageServer("127.0.0.1", 0, PrivatePages({"/debug/pods": lambda *_: picture}))
    server.start()
    try:
        address = f"--server http://127.0.0.1:{server.port}"
        lines = (f"status {address}", f"status {address} -o wide --tier unschedulable", f"status {address} nobody")
        compare("status", "\n".join(run(line, capsys, monkeypatch) for line in lines))
    finally:
        server.stop()


def test_record_prints_what_is_kept(
    directory: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EXTENDER_WATCH_KINDS", "Node,Pod")
    with fake_api(make_node("n").obj()) as api:
        api.put(PODS, make_pod("p").node("n").obj())
        config = api.kubeconfig(directory).name
        compare("record", run(f"record r.jsonl --kubeconfig {config} --seconds 0.2", capsys, monkeypatch))


def test_doctor_prints_what_is_kept(
    directory: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    healthy, ill = Installation(directory), Installation(directory)
    ill.clock_seconds = 60.0
    ill.config["percentageOfNodesToScore"] = 5
    ill.entry = {"nodeCacheCapable": False, "weight": 1}
    ill.policy = "kind: Polic\n"
    texts = []
    for installation in (healthy, ill):
        with installation.running() as flags:
            texts.append(run(f"doctor {shlex.join(flags)}", capsys, monkeypatch))
    compare("doctor", "\n".join(texts))


def test_certs_prints_what_is_kept(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ("certs pki", "certs pki", "certs pki --rotate-ca", "certs pki --rotate-ca")
    compare("certs", "\n".join(run(line, capsys, monkeypatch) for line in lines))
