"""`extender certs`: what it makes lets in whom it should, and is renewed and rotated without a client locked out."""

from __future__ import annotations

import json
import socket
import ssl
import stat
import threading
from base64 import b64decode
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from extender.cli.main import cli
from extender.errors import ConfigurationError
from extender.web.access import AccessRules, WsgiConnection, server_context
from extender.web.request_parser import RequestRefused

SERVICE, CALLER = "extender.extender-system.svc", "system:kube-scheduler"


def run(directory: Path, *flags: str) -> list[dict[str, Any]]:
    ended = CliRunner().invoke(cli, ["certs", str(directory), "-o", "json", *flags], catch_exceptions=False)
    assert ended.exit_code == 0, ended.output
    rows: list[dict[str, Any]] = json.loads(ended.stdout)["certificates"]
    return rows


def done(rows: list[dict[str, Any]]) -> dict[str, str]:
    return {row["file"]: row["done"] for row in rows if row["file"] in ("server.crt", "caller.crt", "scraper.crt")}


def refusal_of(connected: ssl.SSLSocket) -> str:
    """Returns why the client may not call; "" if it may."""
    rules = AccessRules(certificate_required=True, names=frozenset({CALLER}))
    try:
        rules.check("POST", "/scheduler/filter", "", "", WsgiConnection({"gunicorn.socket": connected}))
    except RequestRefused as refused:
        return refused.message
    return ""


def shake_hands(server: Path, client: Path, pair: str, ca: str = "ca") -> str:
    """Returns why the server of one directory refuses a client of another; "" where it lets it in."""
    tls = server_context(str(server / "server.crt"), str(server / "server.key"), str(server / f"{ca}.crt"))
    asking = ssl.create_default_context(cafile=str(client / "ca.crt"))
    asking.load_cert_chain(client / f"{pair}.crt", client / f"{pair}.key")
    here, there = socket.socketpair()
    there.settimeout(60)
    here.settimeout(60)
    answers: list[str] = []

    def serve() -> None:
        try:
            with tls.wrap_socket(there, server_side=True) as connected:
                answers.append(refusal_of(connected))
                connected.sendall(b"x")
        except OSError as error:
            answers.append(str(error))

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with asking.wrap_socket(here, server_hostname=SERVICE) as connected:
            connected.recv(1)
    except OSError as error:
        thread.join()
        return "; ".join([*filter(None, answers), str(error)])
    thread.join()
    return answers[0]


def test_only_a_client_of_the_list_may_call(tmp_path: Path) -> None:
    assert set(done(run(tmp_path)).values()) == {"made"}
    assert shake_hands(tmp_path, tmp_path, "caller") == ""
    assert "unknown ca" in shake_hands(tmp_path, tmp_path, "scraper").lower().replace(
        "unable to get local issuer", "unknown ca"
    )
    assert "unsuitable certificate purpose" in shake_hands(tmp_path, tmp_path, "server")
    assert "name is not in clientNames" in shake_hands(tmp_path, tmp_path, "scraper", "scrapers-ca")


def test_keys_are_for_their_owner(tmp_path: Path) -> None:
    run(tmp_path / "pki")
    assert stat.S_IMODE((tmp_path / "pki").stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "pki").glob("*.key")} == {0o600}


@pytest.mark.parametrize(
    ("flags", "renewed"),
    [
        pytest.param((), set(), id="nothing to do"),
        pytest.param(("--renew-days", "400"), {"server.crt", "caller.crt", "scraper.crt"}, id="they end soon"),
        pytest.param(("--dns", "127.0.0.1.nip.io"), {"server.crt"}, id="another name of the server"),
        pytest.param(("--caller", "scheduler-2"), {"caller.crt"}, id="another caller"),
    ],
)
def test_valid_certificates_are_kept(tmp_path: Path, flags: tuple[str, ...], renewed: set[str]) -> None:
    run(tmp_path)
    printed = done(run(tmp_path, *flags))
    assert {file for file, how in printed.items() if how == "renewed"} == renewed
    assert {how for file, how in printed.items() if file not in renewed} <= {"kept"}


def test_a_rotation_locks_no_client_out(tmp_path: Path) -> None:
    """A peer may have the files of one step before, at each step."""
    stages = [tmp_path / name for name in ("before", "known", "signing")]
    run(stages[0])
    for earlier, later in pairwise(stages):
        later.mkdir()
        for file in earlier.iterdir():
            (later / file.name).write_bytes(file.read_bytes())
        run(later, "--rotate-ca")
        assert shake_hands(earlier, later, "caller") == shake_hands(later, earlier, "caller") == ""
    assert set(done(run(stages[1])).values()) == set(done(run(stages[2])).values()) == {"kept"}
    assert shake_hands(stages[0], stages[2], "caller") != ""
    assert (stages[0] / "ca.key").read_bytes() != (stages[2] / "ca.key").read_bytes()


def test_a_rotation_that_was_interrupted_is_finished(tmp_path: Path) -> None:
    run(tmp_path)
    run(tmp_path, "--rotate-ca")
    following = [(tmp_path / f"ca-next.{suffix}").read_bytes() for suffix in ("crt", "key")]
    old = (tmp_path / "ca.key").read_bytes()
    run(tmp_path, "--rotate-ca")
    for suffix, data in zip(("crt", "key"), following, strict=True):
        (tmp_path / f"ca-next.{suffix}").write_bytes(data)
    (tmp_path / "ca.key").write_bytes(old)
    assert set(done(run(tmp_path)).values()) == {"kept"}
    assert (tmp_path / "ca.key").read_bytes() == following[1]


@pytest.mark.parametrize(
    ("file", "error"),
    [
        pytest.param("ca.key", "ca.key: the private key cannot be read", id="a key"),
        pytest.param("ca.crt", "ca.crt: the certificates cannot be read", id="a certificate"),
    ],
)
def test_a_broken_file_is_named_and_nothing_is_written(tmp_path: Path, file: str, error: str) -> None:
    run(tmp_path)
    (tmp_path / file).write_text("no PEM")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(ConfigurationError, match=error):
        run(tmp_path, "--renew-days", "400")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_an_authority_whose_key_is_elsewhere_is_not_recreated(tmp_path: Path) -> None:
    run(tmp_path)
    (tmp_path / "ca.key").unlink()
    authority = (tmp_path / "ca.crt").read_bytes()
    with pytest.raises(FileNotFoundError, match=r"ca\.key"):
        run(tmp_path)
    assert (tmp_path / "ca.crt").read_bytes() == authority


def test_a_faulty_dns_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="möbel"):
        run(tmp_path, "--dns", "möbel")


@pytest.mark.parametrize("name", ["extender", "second-extender"])
def test_the_secrets_hold_what_the_chart_mounts_and_no_authority_key(tmp_path: Path, name: str) -> None:
    """They are named after the Service, so the Secrets of a second installation are others."""
    service = f"{name}.ns.svc"
    ended = CliRunner().invoke(cli, ["certs", str(tmp_path), "--service", service, "--secrets", "ns"])
    secrets = {each["metadata"]["name"]: each for each in yaml.safe_load_all(ended.output)}
    assert set(secrets) == {f"{name}-tls", f"{name}-caller", f"{name}-scrapers"}
    held = {name: {key: b64decode(value) for key, value in each["data"].items()} for name, each in secrets.items()}
    assert all(set(data) == {"tls.crt", "tls.key", "ca.crt"} for data in held.values())
    assert held[f"{name}-tls"]["ca.crt"] == held[f"{name}-caller"]["ca.crt"] == (tmp_path / "ca.crt").read_bytes()
    assert held[f"{name}-scrapers"]["ca.crt"] == (tmp_path / "scrapers-ca.crt").read_bytes()
    authorities = {path.read_bytes() for path in tmp_path.glob("*ca.key")}
    assert not authorities & {value for data in held.values() for value in data.values()}
