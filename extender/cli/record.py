"""The commands `snapshot`, `translate`, `record`, `replay` and `upgrade-check`, for stored clusters and decisions."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from extender.cli.document_kinds import DocumentKind, one_or_list
from extender.cli.output import (
    FILE,
    Format,
    Output,
    answer_stream,
    answering,
    output_option,
    say,
    say_lines,
    show,
    switch,
    write_whole,
)
from extender.cli.source_options import (
    DOES_NOT_FIT,
    TIMEOUT_OPTION,
    Progress,
    Seconds,
    Source,
    access_options,
    input_faults,
    print_notes,
    refuse_options,
    show_progress,
    source_options,
)
from extender.config.cluster_access import ClusterAccess, live_access
from extender.config.settings import load
from extender.errors import ConfigurationError
from extender.runtime.questions import time_limit
from extender.runtime.text import counted

if TYPE_CHECKING:
    from extender.cache.observed import CacheSize

DIFFERS = DOES_NOT_FIT
_FILE = click.Path(path_type=Path, dir_okay=False)
_KEY_BYTES = 16
_KEY_HELP = "file with the secret that the hashes depend on, at least 16 bytes"


@click.command()
@partial(source_options, whole=True, decides=False)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    required=True,
    metavar="FILE",
    help="file to write, compressed if its name ends in .gz; -: standard output",
)
@switch("--redact", help="replace names, label values and images by hashes; equal ones stay equal")
@click.option("--redact-key", type=_FILE, metavar="FILE", help=_KEY_HELP)
def snapshot(source: Source, output: Path, redact: bool, redact_key: Path | None) -> None:
    """Write a cluster to a file: all kinds of objects that scheduling reads, with only the fields it reads.

    Environment variables, commands, secrets and annotations in which tools keep a whole manifest are left out. With
    --redact, names, label values and images become hashes, and annotations other than those of Kubernetes are left out.
    Keys of labels, taints and resources stay if Kubernetes defines them or they have no domain, and so do numbers, the
    names of schedulers, drivers and provisioners, and the attributes of devices.

    Decisions on such a file are the same as on the cluster, except with rules of your own, and with a policy that names
    a replaced key. A rule may read objects that the file lacks, or names, label values and annotations that --redact
    has changed or left out. Try such a rule on the output of `kubectl get` instead.

    \b
    A live cluster, once with its names and once with hashes, to attach to a ticket:
      extender snapshot -o cluster.json.gz
      extender snapshot -o cluster.json.gz --redact --context production
      extender explain --cluster cluster.json.gz
    With the same hashes each time, so that `extender translate` can put the names into an answer:
      head -c 32 /dev/urandom | base64 > key
      extender snapshot -o cluster.json.gz --redact --redact-key key

    Exit status: 0 if the file is written, even if notes on stderr say that objects are missing; 2 for wrong usage or
    input; 1 for a failure.
    """
    from extender.model.redaction import Redaction
    from extender.snapshots.files import write_snapshot

    if redact_key is not None and not redact:
        raise ConfigurationError(["--redact-key needs --redact"])
    if str(output) in tuple(Format):
        raise ConfigurationError([f"-o {output}: expected the file to write, such as cluster.json.gz, or - for stdout"])
    key = None if redact_key is None else _key(redact_key)
    state, unread = source.load()
    redaction = Redaction(key) if redact else None
    data = write_snapshot(
        state.every_object(),
        redaction=redaction,
        compress=output.suffix == ".gz",
        kubernetes_version=state.kubernetes_version,
    )
    if str(output) == "-":
        if (stdout := answer_stream()) is None:
            raise ConfigurationError(["-o -: standard output is closed; give a file with -o FILE"])
        stdout.buffer.write(data)
        stdout.flush()
    else:
        write_whole(output, data)
    if source.namespace and state.pods_unread is None:
        unread.append("the file has the pods of all namespaces, because each of them can affect where a pod is placed")
    print_notes(unread)


def _key(path: Path) -> bytes:
    """Returns the key for redacted names, which the file contains.

    Raises OSError, or ConfigurationError if the key is too short to be safe.
    """
    advice = f"`head -c 32 /dev/urandom | base64 > {path}` makes a key"
    if not path.exists():
        raise ConfigurationError([f"{path}: no such file; {advice}"])
    from extender.snapshots.files import naming_file

    with naming_file(path):
        key = path.read_bytes().strip()
    if len(key) < _KEY_BYTES:
        raise ConfigurationError([f"{path}: expected a key of at least {_KEY_BYTES} bytes, got {len(key)}; {advice}"])
    return key


@click.command()
@partial(source_options, whole=True, decides=False)
@click.argument("answer", type=FILE, metavar="ANSWER")
@click.option("--redact-key", type=_FILE, required=True, metavar="FILE", help=_KEY_HELP)
def translate(source: Source, answer: Path, redact_key: Path) -> None:
    """Put the names back into an answer about a redacted cluster. ANSWER is a file, or - for standard input.

    It needs the key that the snapshot was redacted with, and the cluster itself, live or in a file. If a name
    is no longer in the cluster, its hash stays.

    \b
    An answer that was found with a redacted snapshot:
      extender translate answer.txt --redact-key key
      extender explain --cluster cluster.json.gz | extender translate - --redact-key key

    Exit status: 0, 2 for wrong usage or input, 1 for a failure.
    """
    from extender.model.redaction import translated
    from extender.snapshots.files import read

    if str(answer) == "-" and str(source.cluster) == "-":
        raise ConfigurationError(["the answer and --cluster - cannot both read standard input"])
    key, text = _key(redact_key), read(answer).decode(errors="replace")
    state, unread = source.load()
    say(translated(text, state.every_object(), key).rstrip("\n"))
    print_notes(unread)


@click.command()
@click.argument("file", type=_FILE)
@access_options
@click.option(
    "--seconds",
    type=Seconds(min=0, min_open=True),
    metavar="N",
    help="stop after N seconds  [default: at Ctrl-C]",
)
@click.option("--record-bytes", metavar="VALUE", help="approximate limit of the files' size  [default: 256Mi]")
@switch("--redact", help="replace names, label values and images by hashes; equal ones stay equal")
def record(file: Path, access: ClusterAccess, seconds: float | None, record_bytes: str | None, redact: bool) -> None:
    """Record the changes in a cluster, as its watches deliver them, without deciding or writing anything.

    Environment variables, commands and secrets are left out. With --redact names, label values and images become
    hashes, as in `extender snapshot --redact`, and the policy is left out.

    \b
    Record ten minutes, compressed; then list what happened, step by step:
      extender record recording.jsonl.gz --seconds 600
      extender replay recording.jsonl.gz --steps

    To record calls and decisions, use `extender serve --record FILE` or `extender schedule --record FILE`.

    Exit status: 0 if the recording is complete, 2 for wrong usage, 1 for a failure.
    """
    live = live_access(access)
    options = {
        "kubeconfig": os.pathsep.join(map(str, live.kubeconfigs)),
        "context": live.context or "",
        "as_": live.user or "",
        "as_group": live.groups,
        "record": file,
        "log_format": "text",
        "log_level": "warning",
        **({"record_bytes": record_bytes} if record_bytes else {}),
    }
    settings = load(None, os.environ, options)
    from extender.app.live_lookups import readable
    from extender.app.observation import record as run

    names, notes = readable(settings) if settings.cluster is None else ([], [])
    print_notes(notes)
    if notes:
        settings = settings.model_copy(update={"watch_kinds": tuple(names)})
    size = run(settings, seconds, _show_size, redact=redact)
    click.echo(
        f"recorded to {file}; at the end there were {counted(size.nodes, 'node')} and {counted(size.pods, 'pod')}"
    )


def _show_size(size: CacheSize) -> None:
    if sys.stderr.isatty():
        show_progress(f"recording: {size.nodes} nodes, {size.pods} pods")


@click.command()
@click.argument("files", type=_FILE, nargs=-1, required=True, metavar="FILE...")
@click.option("--policy", type=_FILE, metavar="FILE", help="policy to use instead  [default: the recording's own]")
@switch("--steps", help="list what happened, step by step, and decide nothing")
@TIMEOUT_OPTION
@output_option()
def replay(files: tuple[Path, ...], policy: Path | None, steps: bool, timeout: float, output: Output) -> None:
    """Make every decision of a recording again, and show which differ and why.

    Each call and each scheduling attempt is decided on the cluster as it was at its time. Under the recording's own
    policy no decision differs, unless this version of the program decides otherwise. Under another policy, the plugins
    behind each difference are named.

    \b
    Compare the recorded decisions with those of this version, then with those of another policy:
      extender replay recording.jsonl.gz
      extender replay recording.jsonl.gz --policy next.yaml -o json
    List all steps of the recording without deciding anything:
      extender replay recording.jsonl.gz --steps
    Replay each file of a rotated recording on its own:
      extender replay recording.jsonl.gz recording.jsonl.gz.1

    Exit status: 0 if no decision differs, 3 if some do, 2 for wrong usage or input, 1 for a failure.
    """
    if steps:
        refuse_options(("policy",), "cannot be used with --steps, which lists the steps without deciding")
    _answer(files, output, timeout, policy=policy, steps=steps)


@click.command("upgrade-check")
@click.argument("files", type=_FILE, nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--to",
    "gates",
    required=True,
    metavar="VERSION|GATE=BOOL,...",
    help="a version of Kubernetes, such as 1.38, or feature gates, or both",
)
@TIMEOUT_OPTION
@output_option()
def upgrade_check(files: tuple[Path, ...], gates: str, timeout: float, output: Output) -> None:
    """Show which decisions differ under another version of Kubernetes, for a recording or a snapshot.

    Every decision of a recording is made again on the cluster as it was, with the recording's own policy. For a
    snapshot, each of its pods is judged as if it were waiting, under the snapshot's version and the other one; the
    changes are counted by cause. --to VERSION decides like kube-scheduler of that version. Gates that the settings or
    the policy set keep their values. --to GATE=BOOL sets any gate.

    \b
      extender upgrade-check cluster.json.gz --to 1.38
      extender upgrade-check recording.jsonl.gz --to 1.38
      extender upgrade-check recording.jsonl.gz --to NodeDeclaredFeatures=false,StorageCapacityScoring=false
      extender upgrade-check recording.jsonl.gz --to 1.36,VolumeLimitScaling=true -o json

    Exit status: 0 if no decision differs, 3 if some do, 2 for wrong usage or input, 1 for a failure.
    """
    _answer(files, output, timeout, gates=gates)


def _answer(
    files: tuple[Path, ...],
    output: Output,
    timeout: float,
    *,
    policy: Path | None = None,
    steps: bool = False,
    gates: str | None = None,
) -> NoReturn:
    with input_faults(), answering(), time_limit(timeout):
        from extender.offline.recording.reading import is_recording

        if gates is not None and not any(map(is_recording, files)):
            sys.exit(_check_snapshots(files, gates, output))
        sys.exit(_replay(files, policy, steps, gates, output))


def _check_snapshots(files: tuple[Path, ...], gates: str, output: Output) -> int:
    from extender.offline.recording.upgrade import as_text, check
    from extender.offline.state import ClusterState

    differs, documents = False, []
    for number, file in enumerate(files):
        notes: list[str] = []
        result = check(ClusterState.load(file, notes=notes), gates, Progress("pods"))
        differs |= bool(result.changed)
        documents.append({"file": str(file), **result.to_dict()})
        if output.is_text:
            if len(files) > 1:
                say(f"{'' if number == 0 else chr(10)}{file}:")
            say_lines(as_text(result, every=output.is_wide), notes)
    if not output.is_text:
        show(one_or_list(DocumentKind.REPLAY, documents), output)
    return DIFFERS if differs else 0


def _replay(files: tuple[Path, ...], policy: Path | None, steps: bool, gates: str | None, output: Output) -> int:
    from extender.offline.recording.reading import Recording
    from extender.offline.recording.replay import as_text, steps_text
    from extender.offline.recording.replay import replay as decide_again

    differs, documents = False, []
    for number, file in enumerate(files):
        recording = Recording.load(file)
        result = None if steps else decide_again(recording, policy, Progress("decisions"), gates=gates)
        differs |= bool(result and result.changed)
        if not output.is_text:
            document = {"steps": [step.to_dict() for step in recording.steps]} if result is None else result.to_dict()
            documents.append({"file": str(file), **document})
            continue
        if len(files) > 1:
            say(f"{'' if number == 0 else chr(10)}{file}:")
        lines = steps_text(recording.steps) if result is None else as_text(result, every=output.is_wide)
        say_lines(lines)
    if documents:
        show(one_or_list(DocumentKind.REPLAY, documents), output)
    return DIFFERS if differs else 0
