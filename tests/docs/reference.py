"""docs/reference.md, written from what `extender reference` lists: `python -m tests.docs.reference`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from extender.cli.reference import TOPICS

PAGE = Path(__file__).parents[2] / "docs/reference.md"
_HEAD = """# Reference

Everything that can be set and read, as `extender reference` lists it, with `-o json` for programs.
`make docs-reference` writes this page from the code.
"""
_SECTIONS = {
    "settings": "A flag overrides the environment, and the environment overrides the file of `--config`. "
    "A setting that `COMMANDS` does not name for a command is refused there, because it would have no effect.",
    "policy": "The fields of a file for `--policy`, in both of its forms. `POINT` is any extension point.",
    "plugins": "The in-tree plugins, their weights, and what `pluginConfig` takes.",
    "policy-names": "Predicates and priorities of the classic `kind: Policy`.",
    "endpoints": "Pages below `/debug/` and `/ui`, and `/simulate`, answer only this machine, under its own name, as "
    "`kubectl port-forward` asks; if `clientCa` is set, they answer every client with a certificate. An error about "
    "one pod is in the field `Error` of an answer with status 200, because kube-scheduler looks for it there. "
    "Malformed JSON is 400, another path 404, another method 405, a body beyond the limit 413, another content type "
    "415: one line of JSON each.",
    "metrics": "Series of `scheduler_` are those of `extender schedule`.",
    "log": "One JSON object a line; with `--log-format text` the message, then `field=value`.",
    "documents": "The kinds of documents that `-o json` and `-o yaml` print. `extender reference schema KIND` prints "
    "the JSON Schema of a kind. [Scripts and programs](scripting.md) says more.",
}
_PROSE = {"MEANING", "COMMANDS", "RULES", "WEIGHT", "TYPE", "KIND", "FORM", "SERVED BY", "METHOD", "PRINTED BY"}


def page() -> str:
    """Returns the text of docs/reference.md."""
    return "\n".join([_HEAD, *(f"## {name}\n\n{_SECTIONS[name]}\n\n{_table(TOPICS[name]())}" for name in _SECTIONS)])


def _table(rows: Sequence[Mapping[str, str]]) -> str:
    columns = list(rows[0])
    lines = [columns, ["---"] * len(columns)]
    lines += [[_cell(column, row[column]) for column in columns] for row in rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cell(column: str, text: str) -> str:
    safe = text.replace("|", "\\|")
    return safe if column in _PROSE or text in ("", "-") or text.startswith("a name of") else f"`{safe}`"


if __name__ == "__main__":
    PAGE.write_text(page())
