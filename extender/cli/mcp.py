"""The command `extender mcp`: answers an assistant's questions about a cluster over the Model Context Protocol.

The assistant starts the command and talks to it over stdin and stdout. Start reading at `mcp_server`.
"""

from __future__ import annotations

from contextlib import redirect_stdout
from functools import partial
from importlib.util import find_spec

import click

from extender.cli.output import answer_stream
from extender.cli.source_options import Source, source_options
from extender.errors import ConfigurationError


@click.command()
@partial(source_options, asks=False)
@click.option("--url", metavar="URL", help="the urlPrefix of an extender that the tool doctor also checks")
def mcp(source: Source, url: str | None) -> None:
    """Answer an assistant's questions about a cluster, over the Model Context Protocol (stdio).

    The assistant can list pending pods and nodes, explain pods and groups, run simulate, capacity and compare, and
    check the installation. It can change nothing. Each call reads the cluster again. --policy sets the policy.

    \b
    In an assistant's configuration:
      {"mcpServers": {"scheduling": {"command": "extender", "args": ["mcp", "--context", "production"]}}}

    It needs the package mcp: pip install 'podseat[mcp]'

    Exit status: 0 when the assistant ends it, 2 for wrong usage or input, 1 for a failure.
    """
    if find_spec("mcp") is None:
        raise ConfigurationError(["extender mcp needs the package mcp: pip install 'podseat[mcp]'"])
    if str(source.cluster) == "-":
        raise ConfigurationError(["--cluster -: the assistant talks over standard input, so give a file"])
    from extender.cli.mcp_server import Tools, server_of

    source.profiles()  # a faulty policy must end the command here, not fail each call
    # Only the protocol may write to stdout. The SDK redirects what rules print.
    with redirect_stdout(answer_stream()):
        server_of(Tools(source, url)).run("stdio")
