"""The output of a benchmark: tables in Markdown or JSON on stdout, progress on stderr, and the tables of a document."""

from __future__ import annotations

import json
import os
import platform
import re
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np


@dataclass
class Table:
    """Rows under a header; a document holds it between `<!-- NAME -->` and `<!-- end NAME -->`.

    Attributes:
        records: what the rows were made of, one a row, for JSON.
    """

    name: str
    header: Sequence[str]
    rows: list[Sequence[str]] = field(default_factory=list)
    records: list[dict[str, Any]] = field(default_factory=list)

    def __str__(self) -> str:
        rule = ["---", *("--:" for _ in self.header[1:])]
        return "\n".join([_line(self.header), f"|{'|'.join(rule)}|", *map(_line, self.rows)])

    def add(self, row: Sequence[str], record: dict[str, Any]) -> None:
        """Adds a row, and shows it as progress."""
        self.rows.append(row)
        self.records.append(record)
        print(_line(row), file=sys.stderr, flush=True)

    def within(self, text: str) -> str:
        """Returns the table that a document holds in the place of this one. Raises LookupError without such a place."""
        found = self._place.search(text)
        if not found:
            raise LookupError(f"no line `<!-- {self.name} -->`")
        return found[2]

    def put_into(self, text: str) -> str:
        """Returns the document with this table in its place. Raises LookupError without such a place."""
        self.within(text)
        return self._place.sub(lambda found: f"{found[1]}{self}{found[3]}", text)

    @property
    def _place(self) -> re.Pattern[str]:
        return re.compile(rf"(<!-- {self.name} -->\n)(.*?)(\n<!-- end {self.name} -->)", re.DOTALL)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("-o", "--output", choices=["markdown", "json"], default="markdown")
    parser.add_argument("--write", metavar="FILE", type=_document, help="also put its tables into this document")


def _document(path: str) -> Path:
    """Returns the path of a file that exists, because a mistyped one would be noticed only after the measurement."""
    if not Path(path).is_file():
        raise ArgumentTypeError(f"no such file: {path}")
    return Path(path)


def publish(tables: Sequence[Table], options: Namespace) -> None:
    """Prints the tables, and writes them to the document that the options name."""
    if options.output == "json":
        print(json.dumps({"machine": machine(), **{table.name: table.records for table in tables}}, indent=1))
    else:
        print("\n\n".join([machine(), *map(str, tables)]))
    for table in tables if options.write else ():
        try:
            options.write.write_text(table.put_into(options.write.read_text()))
        except LookupError as error:
            progress(f"{options.write}: {error}")


def progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def machine() -> str:
    gibibytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    python = f"{platform.python_implementation()} {platform.python_version()}, NumPy {np.__version__}"
    return f"{os.cpu_count()} cores ({_processor()}), {gibibytes:.0f} GiB; {python}"


def _processor() -> str:
    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return names[0].partition(":")[2].strip() if names else platform.machine()
