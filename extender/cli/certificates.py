"""Creates and renews certificates in a directory: authorities, and the certificates that they sign.

It needs the package cryptography, an optional dependency that only `extender certs` uses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID

from extender.cli.output import write_whole
from extender.errors import ConfigurationError

_AUTHORITY_DAYS = 3650
_CLOCK_SKEW = timedelta(minutes=5)


@dataclass(frozen=True)
class Pair:
    """A certificate that is created with its key. `names` are its DNS names; the first is its common name too."""

    file: str
    authority: str
    names: tuple[str, ...]
    usage: Literal["server", "client"]


Row = Mapping[str, str]
"""A certificate in the document that `extender certs` prints; see schemas.Certificate."""


class Store:
    """The certificates and keys in a directory. Methods raise ConfigurationError if a file cannot be used."""

    def __init__(self, directory: Path, now: datetime, days: int, renew_days: int) -> None:
        self._directory = directory
        self._now = now
        self._validity = timedelta(days=days)
        self._renew = timedelta(days=renew_days)

    def authority(self, name: str, *, rotate: bool) -> list[Row]:
        """Creates the authority if it is missing or expired, or takes the next step of its rotation.

        The first step of a rotation publishes the next authority. The second step makes it sign. NAME.crt contains all
        authorities that peers must trust, the signing one first. Returns a table row for each of these authorities.
        """
        if not (self._path(name, "crt").exists() and (trusted := self._trusted(name))):
            return [self._new_authority(name)]
        following = f"{name}-next"
        if rotate and not self.knows_next(name):
            self._new_authority(following)
            self._write(f"{name}.crt", _pem([trusted[0], *self._certificates(following)]))
        elif rotate:
            signing = self._certificates(following)[0]
            self._write(f"{name}.crt", _pem([signing, *(each for each in trusted if each != signing)]))
        self._finish_rotation(name, following)
        return [_row(f"{name}.crt", each, "trusted") for each in self._trusted(name)]

    def knows_next(self, name: str) -> bool:
        """Returns True between the two steps of a rotation: the next authority exists, but does not sign yet."""
        return self._path(f"{name}-next", "crt").exists()

    def _trusted(self, name: str) -> list[x509.Certificate]:
        return [each for each in self._certificates(name) if each.not_valid_after_utc > self._now]

    def _finish_rotation(self, name: str, following: str) -> None:
        """Makes NAME-next the signing authority if its certificate is already the first in NAME.crt.

        Called on every run, because an earlier run may have been interrupted after it wrote NAME.crt.
        """
        path = self._path(following, "crt")
        if path.exists() and self._certificates(name)[0] == self._certificates(following)[0]:
            self._path(following, "key").replace(self._path(name, "key"))
            path.unlink()
        if self._signing_key(name).public_key() != self._certificates(name)[0].public_key():
            raise ConfigurationError([f"{self._path(name, 'key')} is not the key of {self._path(name, 'crt')}"])

    def pair(self, pair: Pair) -> Row:
        """Creates a certificate and its key. Renews them if they expire soon or have a wrong authority or names."""
        authority, done = self._certificates(pair.authority)[0], "made"
        if self._path(pair.file, "key").exists() and self._path(pair.file, "crt").exists():
            existing = self._certificates(pair.file)[0]
            if self._is_good(existing, authority, pair):
                return _row(f"{pair.file}.crt", existing, "kept")
            done = "renewed"
        key = _new_key()
        try:
            certificate = self._leaf(pair, authority, key)
        except ValueError as error:
            raise ConfigurationError([f"{', '.join(pair.names)}: {_one_line(error)}"]) from None
        self._write(f"{pair.file}.key", _key_pem(key), 0o600)
        self._write(f"{pair.file}.crt", _pem([certificate]))
        return _row(f"{pair.file}.crt", certificate, done)

    def _is_good(self, existing: x509.Certificate, authority: x509.Certificate, pair: Pair) -> bool:
        try:
            existing.verify_directly_issued_by(authority)
        except (InvalidSignature, ValueError, TypeError):
            return False
        matches = self._signing_key(pair.file).public_key() == existing.public_key() and _names(existing) == pair.names
        return matches and existing.not_valid_after_utc - self._now > self._renew

    def _new_authority(self, name: str) -> Row:
        key, subject = _new_key(), _subject(f"extender {name} {self._now:%Y-%m-%dT%H:%M:%S}")
        usage = x509.KeyUsage(
            digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False, key_encipherment=False,
            data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
        )  # fmt: skip
        certificate = (
            self._builder(subject, subject, key, timedelta(days=_AUTHORITY_DAYS))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, SHA256())
        )
        self._write(f"{name}.key", _key_pem(key), 0o600)
        self._write(f"{name}.crt", _pem([certificate]))
        return _row(f"{name}.crt", certificate, "made")

    def _leaf(self, pair: Pair, authority: x509.Certificate, key: EllipticCurvePrivateKey) -> x509.Certificate:
        signer = self._signing_key(pair.authority)
        usage = ExtendedKeyUsageOID.SERVER_AUTH if pair.usage == "server" else ExtendedKeyUsageOID.CLIENT_AUTH
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
        builder = (
            self._builder(_subject(pair.names[0]), authority.subject, key, self._validity)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(issuer, critical=False)
        )
        if pair.usage == "server":
            names = x509.SubjectAlternativeName([x509.DNSName(name) for name in pair.names])
            builder = builder.add_extension(names, critical=False)
        return builder.sign(signer, SHA256())

    def _builder(
        self, subject: x509.Name, issuer: x509.Name, key: EllipticCurvePrivateKey, validity: timedelta
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._now - _CLOCK_SKEW)
            .not_valid_after(self._now + validity)
        )

    def _signing_key(self, name: str) -> EllipticCurvePrivateKey:
        path = self._path(name, "key")
        try:
            key = load_pem_private_key(path.read_bytes(), None)
        except (ValueError, TypeError) as error:
            raise ConfigurationError([f"{path}: the private key cannot be read: {_one_line(error)}"]) from None
        if not isinstance(key, EllipticCurvePrivateKey):
            raise ConfigurationError([f"{path}: expected an ECDSA key, the only kind that this command can use"])
        return key

    def _certificates(self, name: str) -> list[x509.Certificate]:
        path = self._path(name, "crt")
        try:
            return x509.load_pem_x509_certificates(path.read_bytes())
        except ValueError as error:
            raise ConfigurationError([f"{path}: the certificates cannot be read: {_one_line(error)}"]) from None

    def _path(self, name: str, suffix: str) -> Path:
        return self._directory / f"{name}.{suffix}"

    def _write(self, name: str, data: bytes, mode: int = 0o644) -> None:
        write_whole(self._directory / name, data, mode)


def _new_key() -> EllipticCurvePrivateKey:
    return generate_private_key(SECP256R1())


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name[:64])])


def _names(certificate: x509.Certificate) -> tuple[str, ...]:
    """Returns the certificate's DNS names; if it has none, its common name."""
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        return tuple(extension.value.get_values_for_type(x509.DNSName))
    except x509.ExtensionNotFound:
        return (_common_name(certificate.subject),)


def _common_name(name: x509.Name) -> str:
    return str(name.get_attributes_for_oid(x509.NameOID.COMMON_NAME)[0].value)


def _pem(certificates: Sequence[x509.Certificate]) -> bytes:
    return b"".join(each.public_bytes(Encoding.PEM) for each in certificates)


def _key_pem(key: EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _row(file: str, certificate: x509.Certificate, done: str) -> Row:
    name, signed_by = _common_name(certificate.subject), _common_name(certificate.issuer)
    until = f"{certificate.not_valid_after_utc:%Y-%m-%d}"
    return {"file": file, "name": name, "signedBy": signed_by, "until": until, "done": done}


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()).partition(". ")[0]
