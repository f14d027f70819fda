"""Refuses options that would have no effect together with the other options of a command."""

from __future__ import annotations

from collections.abc import Collection

import click
from click.core import ParameterSource

from extender.errors import ConfigurationError

ACCESS = ("kubeconfig", "context", "as_", "as_group")
"""The names of the options that `access_options` adds."""


def refuse_options(names: Collection[str], reason: str) -> None:
    """Refuses the options of these names if they were given on the command line.

    An option that is given with its default value, such as --no-nodes, changes nothing and is accepted.

    Raises:
        ConfigurationError: one of the options was given; the message ends with `reason`.
    """
    context = click.get_current_context()
    given = [
        max(option.opts, key=len)
        for option in context.command.params
        if option.name in names
        and context.get_parameter_source(option.name) is ParameterSource.COMMANDLINE
        and context.params[option.name] != option.default
    ]
    if given:
        raise ConfigurationError([f"{', '.join(given)}: {reason}"])
