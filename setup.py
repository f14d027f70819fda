"""Gives PyPI a README whose links work there; setup.cfg says everything else.

PyPI shows README.md without the repository around it. `make dist PROJECT_URL=https://...` makes the relative links
absolute. Without PROJECT_URL only their text remains, so that no link leads nowhere.
"""

import os
import re
from pathlib import Path

from setuptools import setup

_RELATIVE_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)\s]+)\)")


def published(readme: str, project_url: str) -> str:
    """Returns the README with absolute links to files of the default branch, or without its relative links."""

    def absolute(link: re.Match[str]) -> str:
        image, text, path = link.groups()
        kind = "raw" if image else "blob"
        return f"{image}[{text}]({project_url}/{kind}/HEAD/{path})" if project_url else text

    return _RELATIVE_LINK.sub(absolute, readme)


url = os.environ.get("PROJECT_URL", "")
setup(
    long_description=published(Path(__file__).with_name("README.md").read_text(), url),
    long_description_content_type="text/markdown",
    project_urls={
        "Source": url,
        "Documentation": f"{url}/blob/HEAD/docs/index.md",
        "Changelog": f"{url}/blob/HEAD/CHANGELOG.md",
    }
    if url
    else {},
)
