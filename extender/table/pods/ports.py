"""Host ports in use on each node. Source: upstream framework HostPortInfo.CheckConflict."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from extender.table.podinfo import HostPort

EVERY_ADDRESS = "0.0.0.0"  # noqa: S104  compared with, never bound


class PortColumns:
    """For each (protocol, port) the addresses in use and the rows that use them, with counts."""

    def __init__(self) -> None:
        self._in_use: defaultdict[tuple[str, int], dict[str, dict[int, int]]] = defaultdict(dict)

    def add(self, ports: Iterable[HostPort], row: int) -> None:
        """Counts a pod with these ports on `row`."""
        for protocol, port, ip in ports:
            rows = self._in_use[protocol, port].setdefault(ip, {})
            rows[row] = rows.get(row, 0) + 1

    def remove(self, ports: Iterable[HostPort], row: int) -> None:
        """Takes a pod with these ports off `row`."""
        for protocol, port, ip in ports:
            addresses = self._in_use[protocol, port]
            addresses[ip][row] -= 1
            if not addresses[ip][row]:
                del addresses[ip][row]
            if not addresses[ip]:
                del addresses[ip]
            if not addresses:
                del self._in_use[protocol, port]

    def in_use(self) -> dict[HostPort, dict[int, int]]:
        """Returns every port that is in use, with the number of pods that use it by row."""
        return {
            HostPort(protocol, port, ip): rows
            for (protocol, port), addresses in self._in_use.items()
            for ip, rows in addresses.items()
        }

    def conflicting(self, ports: Iterable[HostPort]) -> dict[int, int]:
        """Counts the conflicts with any of `ports` by row. 0.0.0.0 conflicts with every address."""
        taken: dict[int, int] = {}
        for port in ports:
            for rows in self._clashing(port):
                for row, pods in rows.items():
                    taken[row] = taken.get(row, 0) + pods
        return taken

    def held(self, ports: Iterable[HostPort]) -> set[tuple[int, HostPort]]:
        """Returns (row, port) of all that are in use and conflict with any of `ports`."""
        return {
            (row, HostPort(port.protocol, port.port, ip))
            for port in ports
            for ip, rows in self._in_use.get((port.protocol, port.port), {}).items()
            if _clash(ip, port.ip)
            for row in rows
        }

    def _clashing(self, wanted: HostPort) -> Iterator[dict[int, int]]:
        for ip, rows in self._in_use.get((wanted.protocol, wanted.port), {}).items():
            if _clash(ip, wanted.ip):
                yield rows


def conflicts_between(wanted: Iterable[HostPort], taken: Sequence[HostPort]) -> int:
    """Counts the conflicting pairs of a wanted and a taken port, as `PortColumns.conflicting` does."""
    return sum(
        (has.protocol, has.port) == (port.protocol, port.port) and _clash(has.ip, port.ip)
        for has in taken
        for port in wanted
    )


def _clash(address: str, other: str) -> bool:
    return EVERY_ADDRESS in (address, other) or address == other
