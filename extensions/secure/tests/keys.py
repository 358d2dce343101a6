"""Keys made here, and the mark of tests that need the extra `trust`."""

import functools
import importlib.util
import os
import tempfile
from pathlib import Path

import pytest

HERE = all(importlib.util.find_spec(name) for name in ("model_signing", "OpenSSL"))
needs_trust = pytest.mark.skipif(
    not HERE and not os.environ.get("QUARTET_REQUIRE_EXTRAS"),
    reason="needs the extra `trust`")


@functools.cache
def pair(name: str = "own") -> tuple[Path, Path]:
    """(private key, public key) of somebody."""
    from cryptography.hazmat.primitives import serialization as to
    from cryptography.hazmat.primitives.asymmetric import ec

    folder = Path(tempfile.mkdtemp(prefix=f"quartet-keys-{name}-"))
    key = ec.generate_private_key(ec.SECP256R1())
    (folder / "key.pem").write_bytes(key.private_bytes(to.Encoding.PEM, to.PrivateFormat.PKCS8, to.NoEncryption()))
    (folder / "key.pub").write_bytes(key.public_key().public_bytes(to.Encoding.PEM, to.PublicFormat.SubjectPublicKeyInfo))
    return folder / "key.pem", folder / "key.pub"
