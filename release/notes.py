"""Prints what CHANGELOG.md says about a release: python release/notes.py VERSION. Fails if it is not the newest one."""

import re
import sys
from pathlib import Path

CHANGELOG = Path(__file__).parents[1] / "CHANGELOG.md"


def notes(changelog: str, version: str) -> str:
    """Returns the text about the version. Raises ValueError if the newest release is another one."""
    _, newest, text, *_ = re.split(r"^## \[(\d\S*)\] - \d{4}-\d\d-\d\d\n", changelog, flags=re.MULTILINE)
    if newest != version:
        raise ValueError(f"CHANGELOG.md: expected {version} as the newest release, got {newest}")
    return text.strip() + "\n"


if __name__ == "__main__":
    try:
        sys.stdout.write(notes(CHANGELOG.read_text(), sys.argv[1]))
    except ValueError as error:
        sys.exit(str(error))
