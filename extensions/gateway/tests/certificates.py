"""Certificates made here: an authority, and what it certifies for 127.0.0.1 and for clients. Needs the extra `trust`."""

import datetime
import importlib.util
import ipaddress
import os

import pytest

needs_trust = pytest.mark.skipif(
    not importlib.util.find_spec("cryptography") and not os.environ.get("QUARTET_REQUIRE_EXTRAS"), reason="needs the extra `trust`")


def made(folder):
    """Writes ca.pem, server.pem, client.pem with their keys (ca.key, ...), and other.pem, which another authority has certified."""
    authority = _certified(folder, "ca", "toy authority", None)
    _certified(folder, "server", "127.0.0.1", authority)
    _certified(folder, "client", "robot", authority)
    _certified(folder, "other", "stranger", _certified(folder, "other-ca", "other authority", None))
    return folder


def _certified(folder, file, name, authority):
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives import serialization as to
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    issuer, issuing_key = authority or (subject, key)
    now = datetime.datetime.now(datetime.timezone.utc)
    certificate = (
        x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key.public_key())
        .serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.BasicConstraints(ca=authority is None, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuing_key.public_key()), critical=False)
        .sign(issuing_key, hashes.SHA256()))
    (folder / f"{file}.pem").write_bytes(certificate.public_bytes(to.Encoding.PEM))
    (folder / f"{file}.key").write_bytes(key.private_bytes(to.Encoding.PEM, to.PrivateFormat.PKCS8, to.NoEncryption()))
    return subject, key
