"""Looks for advisories about what the image installs: `python -m tests.advisories`, a part of `make lint`.

pip-audit calls a package that the index does not know "skipped" and passes. A mirror may know none, so this says how
many were audited. With ADVISORIES=required, as in `make audit`, a package that was not audited is a failure.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

COMMAND = ("--requirement", "constraints.txt", "--require-hashes", "--disable-pip", "--progress-spinner", "off")


def verdict(report: str, *, required: bool) -> tuple[str, int]:
    """Returns what to print about pip-audit's JSON, and the exit status."""
    packages = json.loads(report)["dependencies"]
    audited = [package for package in packages if "skip_reason" not in package]
    faults = [f"{each['name']}: {fault['id']}" for each in audited for fault in each["vulns"]]
    if faults:
        return "\n".join(faults), 1
    if required and (skipped := [package["name"] for package in packages if package not in audited]):
        return f"advisories: NOT CHECKED for {len(skipped)} of {len(packages)} packages: {', '.join(skipped)}", 1
    if audited:
        return f"advisories: none for the {len(audited)} of {len(packages)} packages that the index knows", 0
    return f"advisories: NOT CHECKED: the index has none for any of the {len(packages)} packages", 0


if __name__ == "__main__":
    audit: list[str | Path] = [Path(sys.executable).parent / "pip-audit", *COMMAND, "--format", "json"]
    text, status = verdict(
        subprocess.run(audit, capture_output=True, text=True, check=False).stdout,
        required=os.environ.get("ADVISORIES") == "required",
    )
    print(text)
    sys.exit(status)
