"""What `extender serve` refuses before it serves."""

from __future__ import annotations

from pathlib import Path

import pytest

from extender.app.serve import serve
from extender.config.settings import Settings
from extender.errors import ConfigurationError
from extender.web import server

EXAMPLE = Path(__file__).parents[2] / "extender" / "offline" / "example.yaml"


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    served: list[Settings] = []
    monkeypatch.setattr(server, "serve", lambda settings, _: served.append(settings))
    return served


def settings(**fields: object) -> Settings:
    return Settings.model_validate({"cluster": EXAMPLE, **fields})


@pytest.mark.parametrize("bind", ["0.0.0.0:1", "[::]:1", "10.0.0.1:1", "node-1:1"])
def test_beyond_loopback_it_wants_a_certificate_or_to_be_told(served: list[Settings], bind: str) -> None:
    with pytest.raises(ConfigurationError, match=r"bind: .* is beyond loopback"):
        serve(settings(bind=bind))
    assert served == []
    serve(settings(bind=bind, insecure_bind=True))
    serve(settings(bind=bind, tls_cert="cert.pem", tls_key="key.pem"))
    assert len(served) == 2


@pytest.mark.parametrize("bind", ["127.0.0.1:1", "[::1]:1", "localhost:1"])
def test_on_loopback_it_needs_none(served: list[Settings], bind: str) -> None:
    serve(settings(bind=bind))
    assert len(served) == 1


@pytest.mark.parametrize(("names", "warned"), [((), True), (("system:kube-scheduler",), False)])
def test_a_client_ca_without_names_is_warned_of(
    served: list[Settings], capfd: pytest.CaptureFixture[str], names: tuple[str, ...], warned: bool
) -> None:
    serve(settings(tls_cert="c", tls_key="k", client_ca="ca", client_names=names))
    assert ("clientCa without clientNames" in "".join(capfd.readouterr())) is warned
    assert len(served) == 1
