"""Writes the moves of a plan as a script for bash and kubectl, which an operator reviews and then runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from shlex import join, quote

from extender.model.pod import Pod
from extender.offline.plan.trial import Move
from extender.offline.what_if.simulation import Placement
from extender.runtime.text import printable

_HEAD = """\
# Review this script, then run it with bash. It cordons nodes and evicts pods, one after another.
# If a step fails, nothing else is evicted, and the nodes that it has cordoned are uncordoned.
# It may be run again: a pod that is no longer on its node is skipped.
#   TIMEOUT=60 bash FILE   waits one minute at most, not ten, for a budget, for the end of a pod, for its replacement
#   STRICT=1 bash FILE     ends when a replacement is on another node than planned; without it, that is a warning
set -euo pipefail
"""
_FUNCTIONS = r"""
timeout=${TIMEOUT:-600} step=0 moved=0 cordoned=' '

say() { printf '%s\n' "$*"; }
fail() { say "error: $*" >&2; exit 1; }

# Uncordons those of the nodes that this script has cordoned.
uncordon() {
  local node
  for node in "$@"; do
    case $cordoned in *" $node "*) ;; *) continue ;; esac
    kubectl uncordon "$node" || return 1
    cordoned=${cordoned/ $node / }
  done
}

finish() {
  local status=$?
  trap - EXIT
  trap '' INT TERM
  uncordon $cordoned || say "error: these nodes are still cordoned:${cordoned% }; run: kubectl uncordon$cordoned" >&2
  [ "$status" -eq 0 ] || say "stopped after $moved of $steps moves, and nothing else is evicted; make a new plan," \
    "because the cluster is no longer the one that this plan was made for" >&2
  exit "$status"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Cordons a node until the script ends; for good if the second argument is "stays". Nodes that are cordoned stay so.
cordon() {
  local state
  state=$(kubectl get node "$1" -o 'jsonpath={.spec.unschedulable}')
  [ "$state" != true ] || return 0
  [ "${2-}" = stays ] || cordoned="$cordoned$1 "
  kubectl cordon "$1"
}

# Waits until a command succeeds. Arguments: what to say if the time ends, the command.
wait_until() {
  local complaint=$1 ends=$((SECONDS + timeout))
  shift
  until "$@"; do
    [ "$SECONDS" -lt "$ends" ] || fail "$complaint (waited $timeout s)"
    sleep 1
  done
}

# Prints a pod's uid, node and controller's uid, with - for what it has not; nothing if there is no such pod.
describe() {
  kubectl get pod -n "$1" "$2" --ignore-not-found -o \
    'jsonpath={.metadata.uid}|{.spec.nodeName}|{.metadata.ownerReferences[?(@.controller==true)].uid}' |
    awk -F'|' 'NF { print $1, ($2 ? $2 : "-"), ($3 ? $3 : "-") }'
}

# Prints uid, node and name of each pod of a controller that has a node; without a controller (-), of the named pod.
replicas() {
  local owner='.metadata.ownerReferences[?(@.controller==true)].uid'
  kubectl get pods -n "$1" --no-headers \
    -o "custom-columns=UID:.metadata.uid,NODE:.spec.nodeName,NAME:.metadata.name,OWNER:$owner" |
    awk -v owner="$2" -v pod="$3" '$2 != "<none>" && (owner == "-" ? $3 == pod : $4 == owner) { print $1, $2, $3 }'
}

is_gone() { local now; now=$(describe "$1" "$2") && [ "${now%% *}" != "$3" ]; }
has_node() { local now; now=$(describe "$1" "$2") && case $now in *' - '*) return 1 ;; esac; }

# Sets `replacement` to node and name of the first pod that `replicas` prints and that is not among the known uids.
has_replacement() {
  local now
  now=$(replicas "$1" "$2" "$3") || return 1
  replacement=$(printf '%s\n' "$now" | awk -v known="$4" 'NF && !index(known, $1) && !n++ { print $2, $3 }')
  [ -n "$replacement" ]
}

# Evicts a pod through the Eviction API, and asks again while a PodDisruptionBudget refuses it. The uid is a
# precondition, so no newer pod of the same name is evicted.
evict() {
  local answer ends=$((SECONDS + timeout)) waits=
  local body='{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"%s","namespace":"%s"},'
  until answer=$(printf "$body\"deleteOptions\":{\"preconditions\":{\"uid\":\"%s\"}}}" "$2" "$1" "$3" |
    kubectl create --raw "/api/v1/namespaces/$1/pods/$2/eviction" -f - 2>&1)
  do
    case $answer in
      *'(NotFound)'*) return 0 ;;
      *'(TooManyRequests)'*) ;;
      *) fail "pod $1/$2 was not evicted: $answer" ;;
    esac
    [ "$SECONDS" -lt "$ends" ] || fail "pod $1/$2 was not evicted in $timeout s: $answer; see kubectl get pdb -n $1"
    [ -n "$waits" ] || say "  waiting, because the API server answers: $answer"
    waits=yes
    sleep 2
  done
}

# Moves a pod. Its replacement may need nodes that earlier moves have left, which are uncordoned for it.
# Arguments: namespace, pod, its node, the planned node, nodes to uncordon after the eviction, and for a pod without a
# controller the file that keeps it between its eviction and its creation.
move() {
  local namespace=$1 pod=$2 from=$3 to=$4 early=$5 file=$6 uid='' node='' owner=- known='' found
  step=$((step + 1))
  found=$(describe "$namespace" "$pod")
  [ -z "$found" ] || read -r uid node owner <<< "$found"
  if [ -z "$found" ] && [ -n "$file" ] && [ -e "$file" ]; then
    say "step $step of $steps: creating $namespace/$pod from $file, because an earlier run has evicted it"
  elif [ "$node" != "$from" ]; then
    say "step $step of $steps: skipped, because pod $namespace/$pod is no longer on $from"
    return 0
  else
    say "step $step of $steps: evicting $namespace/$pod from $from"
    cordon "$from"
    [ -z "$file" ] || save "$namespace" "$pod" "$file"
    known=$(replicas "$namespace" "$owner" "$pod" | awk '{ printf "%s ", $1 }')
    evict "$namespace" "$pod" "$uid"
    wait_until "pod $namespace/$pod does not end: see kubectl describe pod -n $namespace $pod" \
      is_gone "$namespace" "$pod" "$uid"
    uncordon $early
  fi
  moved=$((moved + 1))
  [ -z "$file" ] || kubectl create -f "$file" || fail "pod $namespace/$pod is not created again: its manifest is $file"
  wait_until "the replacement of pod $namespace/$pod gets no node: see kubectl get pods -n $namespace -o wide" \
    has_replacement "$namespace" "$owner" "$pod" "$known"
  [ -z "$file" ] || rm "$file"
  say "  pod $namespace/${replacement#* } is on ${replacement%% *}"
  compare "${replacement%% *}" "$to"
}

save() {
  kubectl get pod -n "$1" "$2" -o yaml | sed '/^  nodeName:/d; /^  uid:/d; /^  resourceVersion:/d' > "$3.new"
  mv "$3.new" "$3"
}

compare() {
  [ "$1" != "$2" ] || return 0
  say "  warning: planned was $2, so the rest of the plan may not hold" >&2
  [ -z "${STRICT-}" ] || exit 3
}

# Waits until a pod that the plan places has a node. Arguments: namespace, pod, the planned node.
expect() {
  local found node
  wait_until "pod $1/$2 gets no node, although it has room now: see kubectl describe pod -n $1 $2" has_node "$1" "$2"
  found=$(describe "$1" "$2")
  [ -n "$found" ] || { say "pod $1/$2 is gone"; return 0; }
  read -r _ node _ <<< "$found"
  say "pod $1/$2 is on $node"
  compare "$node" "$3"
}
"""


def script(
    title: str,
    moves: Sequence[Move],
    evicted: Mapping[str, Pod],
    emptied: Sequence[str],
    waiting: Sequence[Placement],
    created: Sequence[Placement],
    flags: Sequence[str],
) -> Iterator[str]:
    """Yields the lines of the script.

    Args:
        title: what the plan does.
        evicted: the pods of the moves, by `namespace/name`.
        emptied: nodes that are cordoned first and stay so.
        waiting: pods that wait for the end of the moves.
        created: pods that the user creates after the moves.
        flags: flags for each call of kubectl, such as `--context=test`.
    """
    yield "#!/usr/bin/env bash"
    yield f"# {printable(title)}"
    if not moves:
        return
    yield _HEAD.rstrip("\n")
    if flags:
        yield f'kubectl() {{ command kubectl {join(flags)} "$@"; }}'
    yield f"steps={len(moves)}"
    yield _FUNCTIONS.rstrip("\n")
    yield ""
    yield from (f"cordon {quote(name)} stays" for name in emptied)
    for each in moves:
        yield from _move(each, evicted[each.pod])
    yield "uncordon $cordoned"
    placed = {each.pod for move in moves for each in move.placements}
    yield from (_expect(each) for each in waiting if each.pod not in placed)
    yield '[ "$moved" -gt 0 ] || say "no pod was moved: does kubectl talk to the cluster of the plan?"'
    yield from (printable(f"# Create pod {each.pod} now; planned: on {each.node}.") for each in created)


def _move(move: Move, pod: Pod) -> Iterator[str]:
    """Yields the lines that move one pod; some nodes are cordoned for this step only, so that it goes to its target.

    A waiting pod that the plan places in this step must have its node before the next pod is evicted. Otherwise a later
    replacement may take the room, because kube-scheduler tries new pods before those that wait for their backoff.
    """
    file = f"{pod.namespace}.{pod.name}.yaml" if pod.controller is None else ""
    yield from (f"cordon {quote(name)}" for name in move.cordoned)
    yield f"move {join([pod.namespace, pod.name, move.source, move.target, ' '.join(move.uncordoned), file])}"
    if released := [*move.cordoned, *move.released]:
        yield f"uncordon {join(released)}"
    yield from map(_expect, move.placements)


def _expect(placement: Placement) -> str:
    return f"expect {join([*placement.pod.split('/'), placement.node])}"
