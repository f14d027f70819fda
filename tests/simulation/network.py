"""The way to the API server: a KubeClient whose messages are late, lost, doubled or cut off."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.parse import urlencode

from extender.cluster.kube_client import CONNECT_SECONDS, ApiCall, KubeClient, error_of, message_of
from extender.cluster.pool import BrokenExchange, Hung
from extender.errors import OutcomeUnknown, Refused
from tests.simulation.api_server import ApiServer, Reply
from tests.simulation.api_server import refusal as reply
from tests.simulation.tasks import Process, Simulation, Task

T = TypeVar("T")
_SETTLING = (404, 409)
LONGEST_HANG_SECONDS = 25.0


@dataclass
class Weather:
    """The intensity of faults; probabilities are those of one message.

    Attributes:
        stuck: a message takes up to `longest_seconds` instead of a few hundredths of a second.
        dialled_slowly: it takes up to five seconds until a call can be sent.
        repeated: the connection of a call ends without a byte, up to ten seconds later, and the client sends it again.
    """

    unreachable: float = 0.02
    lost: float = 0.02
    answer_lost: float = 0.04
    doubled: float = 0.03
    stuck: float = 0.05
    failed: float = 0.02
    garbled: float = 0.01
    truncated: float = 0.02
    dialled_slowly: float = 0.03
    repeated: float = 0.03
    longest_seconds: float = 1.5


CALM = Weather(0, 0, 0, 0, 0, 0, 0, 0, 0, 0)


class Network:
    """Carries messages. `weather` may change at any time.

    Attributes:
        without_leases: the process whose calls about leases get no answer, though all others do.
        silent: the processes and paths whose watches stay open and deliver nothing, those that are opened later too.
    """

    def __init__(self, simulation: Simulation, api: ApiServer, weather: Weather) -> None:
        self.simulation, self.api, self.weather = simulation, api, weather
        self.streams: list[Stream] = []
        self.hung: list[Stream] = []
        self.silent: set[tuple[Process, str]] = set()
        self.without_leases: Process | None = None
        self.lags: dict[tuple[Process, str], float] = {}  # watches whose events are all so many seconds late

    def calm_down(self) -> None:
        """Nothing goes wrong any more."""
        self.weather, self.api.down, self.without_leases = CALM, False, None
        self.silent.clear()
        self.lags.clear()
        for stream in self.hung:
            stream.recover()

    def delay(self) -> float:
        random = self.simulation.random
        if random.random() < self.weather.stuck:
            return random.uniform(0, self.weather.longest_seconds)
        return random.uniform(0.001, 0.03)

    def happens(self, probability: float) -> bool:
        return self.simulation.random.random() < probability

    def carry(self, seconds: float, serve: Callable[[], T], patience_seconds: float) -> T | None:
        """Has `serve` done on the other side, and waits for what it gives; None: nothing came in time."""
        box, task = _Box[T](), self.simulation.current
        assert task is not None
        lost, answer_lost = self.happens(self.weather.lost), self.happens(self.weather.answer_lost)

        def arrive() -> None:
            answer = serve()
            if not answer_lost:
                self.simulation.after(self.delay(), lambda: box.fill(answer, self.simulation, task))

        if not lost:
            self.simulation.after(seconds, arrive)
        box.awaited = True
        hangs_up = (lost or answer_lost) and self.happens(0.5)
        self.simulation.park(self.delay() + seconds if hangs_up else min(patience_seconds, LONGEST_HANG_SECONDS))
        box.awaited = False
        return box.content


class _Box(Generic[T]):
    """A receiver of an answer."""

    def __init__(self) -> None:
        self.content: T | None = None
        self.awaited = False

    def fill(self, content: T, simulation: Simulation, task: Task) -> None:
        if self.awaited:
            self.content = content
            simulation.wake(task)


class SimulatedKubeClient(KubeClient):
    """The network as a process has it; see KubeClient for what its methods promise."""

    def __init__(self, network: Network, process: Process) -> None:
        self._network, self._process = network, process
        self._served = {}

    @contextmanager
    def get(self, path: str, query: Mapping[str, str], silence_seconds: float, accept: str = "") -> Iterator[Any]:
        target = f"{path}?{urlencode(query)}" if query else path
        if "watch" in query:
            stream = Stream(self._network, self._process, path, silence_seconds)
            refused = self._whole(lambda: self._network.api.watch(target, stream) or Reply(200, b""), silence_seconds)
            try:
                yield stream if refused.status == 200 else _Whole(refused, self._network)
            finally:
                stream.close()
        else:
            yield _Whole(self._exchanged("GET", target, b"", silence_seconds), self._network)

    def call(self, call: ApiCall) -> bytes:
        method, path, body, _, timeout_seconds, check = call
        network, ends_at = self._network, self._network.simulation.now + timeout_seconds
        if network.happens(network.weather.dialled_slowly):
            network.simulation.sleep(network.simulation.random.uniform(0, CONNECT_SECONDS))
        check()
        repeated = network.happens(network.weather.repeated)
        if repeated:
            self._send_in_vain(method, path, body, timeout_seconds)
        try:
            if repeated:
                check()
            answer = self._exchanged(method, path, body, max(ends_at - network.simulation.now, 0.1))
        except Refused as error:
            raise OutcomeUnknown(f"no answer, and then {error}") if repeated else error from None
        if repeated and answer.status >= 300 and answer.status not in _SETTLING:
            raise OutcomeUnknown(f"no answer, and then {answer.status}: {message_of(answer.body)}")
        if not 200 <= answer.status < 300:
            raise error_of(answer.status, answer.body)
        return answer.body

    def _send_in_vain(self, method: str, path: str, body: bytes, patience_seconds: float) -> None:
        """The call arrives or not, and then its connection ends without a byte."""
        network, seconds = self._network, self._network.delay()
        if network.happens(0.5) and not network.api.down:
            network.simulation.after(seconds, lambda: network.api.handle(self._process, method, path, body))
        network.simulation.sleep(seconds + network.simulation.random.uniform(0, max(patience_seconds - seconds, 0)))

    def close(self) -> None:
        pass

    def _exchanged(self, method: str, target: str, body: bytes, patience_seconds: float) -> Reply:
        network, api = self._network, self._network.api
        if network.without_leases is self._process and "/leases" in target:
            network.simulation.park(min(patience_seconds, LONGEST_HANG_SECONDS))
            raise BrokenExchange("no answer")
        failed = network.happens(network.weather.failed)
        doubled = network.happens(network.weather.doubled)
        garbled = network.happens(network.weather.garbled)

        def serve() -> Reply:
            if garbled:  # it is done, and a proxy on the way says something else
                api.handle(self._process, method, target, body)
                return Reply(network.simulation.random.choice((302, 403, 408, 500, 502)), b"\xff\xfe not now")
            if failed:
                return reply(network.simulation.random.choice((429, 500, 503)), "not now")
            if doubled:
                api.handle(self._process, method, target, body)
            return api.handle(self._process, method, target, body)

        answer = self._whole(serve, patience_seconds)
        if doubled and answer.status >= 300 and answer.status not in _SETTLING:
            raise OutcomeUnknown(f"no answer, and then {answer.status}: {message_of(answer.body)}")
        return answer

    def _whole(self, serve: Callable[[], Reply], patience_seconds: float) -> Reply:
        network = self._network
        if network.api.down or network.happens(network.weather.unreachable):
            network.simulation.park(network.delay())
            raise Refused("the API server cannot be reached", 503)
        answer = network.carry(network.delay(), lambda: None if network.api.down else serve(), patience_seconds)
        if answer is None:
            raise BrokenExchange("no answer")
        return answer


class _Whole:
    """An answer that has come as one."""

    def __init__(self, reply: Reply, network: Network) -> None:
        self.status = reply.status
        self._body, self._network = reply.body, network

    def header(self, name: bytes) -> str:
        return "1" if self.status == 429 else ""

    def read(self) -> bytes:
        if self.status == 200 and self._network.happens(self._network.weather.truncated):
            if self._network.happens(0.5):
                raise BrokenExchange("it broke off")
            return self._body[: len(self._body) // 2]
        return self._body


class Stream:
    """A watch: the server's end (`send`, `end`), and the answer that the client reads. Lines come in their order."""

    def __init__(self, network: Network, process: Process, path: str, silence_seconds: float) -> None:
        self.path, self.process, self.status = path, process, 200
        self._network, self._simulation = network, network.simulation
        self._silence_seconds = silence_seconds
        self._arrived, self._over, self._hung, self.muted = b"", False, False, False
        self._loses_next = False
        self._latest = 0.0
        self._reader: Task | None = None
        network.streams.append(self)

    # ---- the server's end

    def send(self, line: bytes) -> None:
        if self._loses(line):
            self._network.api.judge.lost(self.process, self.path, line)
            return
        now = self._simulation.now
        lag = self._network.lags.get((self.process, self.path), 0.0)
        self._latest = max(self._latest + 1e-6, now + lag + self._network.delay())
        self._simulation.after(self._latest - now, lambda: self._arrive(line + b"\n"))

    def end(self) -> None:
        """Everything that was sent arrives, and then the end."""
        if self in self._network.streams:
            self._forget()
            self._simulation.after(max(self._latest - self._simulation.now, 0.0) + 1e-6, self._finish)

    # ---- what goes wrong on the way

    def cut(self) -> None:
        """Loses what has not arrived, perhaps in the midst of a line."""
        self._forget()
        if self._simulation.random.random() < 0.5:
            self._arrived += b'{"type":"MODI'
        self._finish()

    def mute(self) -> None:
        """Bookmarks pass, and events vanish."""
        self.muted = True

    def lose_next(self) -> None:
        """The next event vanishes, and later ones are delivered."""
        self._loses_next = True

    def _loses(self, line: bytes) -> bool:
        if (self.process, self.path) in self._network.silent:
            return True
        is_lost = (self.muted or self._loses_next) and b"BOOKMARK" not in line
        self._loses_next = self._loses_next and not is_lost
        return is_lost

    def hang(self) -> None:
        """Nothing arrives any more, and no end either."""
        self._hung = True
        self._forget()
        self._network.hung.append(self)

    def abort(self) -> None:
        """The client has lost its patience."""
        self._forget()
        self._hung = False
        self._finish()

    def recover(self) -> None:
        """A connection that hangs is reset at last."""
        self._hung = False
        self._finish()

    # ---- the client's end

    def header(self, name: bytes) -> str:
        return ""

    def pieces(self) -> Iterator[bytes]:
        while True:
            if not self._arrived and not self._over:
                self._reader = self._simulation.current
                woken = self._simulation.park(self._silence_seconds)
                self._reader = None
                if not woken and not self._arrived and not self._over:
                    raise Hung("silence")
            piece, self._arrived = self._arrived, b""
            if piece:
                half = self._simulation.random.randrange(len(piece) + 1)
                yield piece[:half]
                yield piece[half:]
            elif self._over:
                return

    def close(self) -> None:
        self._over = True
        self._forget()

    def _arrive(self, data: bytes) -> None:
        if not self._over and not self._hung:
            self._arrived += data
            self._wake()

    def _finish(self) -> None:
        if not self._hung:
            self._over = True
            self._wake()

    def _wake(self) -> None:
        if self._reader is not None:
            self._simulation.wake(self._reader)

    def _forget(self) -> None:
        if self in self._network.streams:
            self._network.streams.remove(self)
        if self in self._network.api.watchers:
            self._network.api.watchers.remove(self)
