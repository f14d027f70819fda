"""Prints the krew manifest of archives that `make binary` made: python release/krew.py URL VERSION ARCHIVE...

An archive is called podseat-OS-ARCH.tar.gz, and the release has it as a file.
"""

import hashlib
import sys
from pathlib import Path

HEAD = """\
apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: podseat
spec:
  version: v{version}
  homepage: {url}
  shortDescription: Explain why a pod is pending
  description: |
    Says in numbers why a pod or a pod group is pending, by kube-scheduler's rules or by
    those of a policy, and names the smallest change that would let it run.
  platforms:
"""
PLATFORM = """\
  - selector:
      matchLabels:
        os: {os}
        arch: {arch}
    uri: {url}/releases/download/v{version}/{name}
    sha256: {digest}
    bin: kubectl-podseat
"""


def manifest(url: str, version: str, archives: list[Path]) -> str:
    """Returns the manifest, with one platform for each archive."""
    platforms = []
    for archive in archives:
        _, os, arch = archive.name.removesuffix(".tar.gz").split("-")
        digest = hashlib.sha256(archive.read_bytes()).hexdigest()
        platforms.append(PLATFORM.format(os=os, arch=arch, url=url, version=version, name=archive.name, digest=digest))
    return HEAD.format(url=url, version=version) + "".join(platforms)


if __name__ == "__main__":
    sys.stdout.write(manifest(sys.argv[1], sys.argv[2], [Path(each) for each in sys.argv[3:]]))
