"""Signatures of runs, exported models and files, in the OpenSSF model signing format, with keys on the disk. Needs the extra `trust`.

What is signed is every file of a folder, by name and SHA-256, less what Quartet adds to a run later (`unsigned`). `verified` hands out a
private copy that holds what was verified and nothing else, so that nobody can change a file between its check and its use.
"""

import base64
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from pipelines.base.errors import ConfigError, DataError, Untrusted
from pipelines.base.files import write_whole
from pipelines.base.inside import NO_LINK, check_regular, digest, held, read_small, refuse_links
from pipelines.base.json_text import parse_json

SIGNATURE = "model.sig"  # in a folder; of a file it is FILE.sig
PASSWORD = "QUARTET_KEY_PASSWORD"  # environment variable: of a private key that is encrypted
_LARGEST = 64 << 20  # bytes of a signature
_NAMED = 3  # files named in a message


def require_extra() -> None:
    """Raises ConfigError where the extra `trust` is not installed."""
    try:
        import model_signing.signing
        import model_signing.verifying  # noqa: F401
    except ImportError as error:
        raise ConfigError(f"signatures need the extra: pip install 'keras-quartet[trust]' ({error})") from error


def signature_of(path: Path) -> Path:
    """Where the signature of a folder or a file lies."""
    return path / SIGNATURE if path.is_dir() else path.with_name(f"{path.name}.sig")


def unsigned(path: Path) -> list[str]:
    """Names in a folder that its signature leaves out: itself, and in a run its lock, its exports and what was pruned of it
    (which are signed by themselves) and the reports of later evaluations."""
    if not (path / "experiment.yaml").is_file():
        return [SIGNATURE, ".lock"] if (path / "search.yaml").is_file() else [SIGNATURE]
    report = path / "report"
    later = sorted(one.name for one in report.iterdir() if one.is_dir() and one.name != "figures") if report.is_dir() else []
    exports = sorted(one.name for one in path.iterdir() if one.is_dir() and one.name.startswith(("export-", "pruned-")))
    return [SIGNATURE, ".lock", "export", *exports, *(f"report/{name}" for name in later)]


def sign(path: Path, key: Path) -> Path:
    """Signs a folder or a file. Returns the signature's file; an older one is replaced.

    Args:
        key: an elliptic curve's private key (P-256, P-384 or P-521), PEM.

    Raises:
        ConfigError: nothing is there, it holds links, or the key cannot be used.
        WriteError: the signature cannot be written.
    """
    require_extra()
    from model_signing import signing

    _there(path)
    check_regular(key, "--key", ConfigError)
    target, password = signature_of(path), os.environb.get(PASSWORD.encode()) if hasattr(os, "environb") else None
    try:
        config = signing.Config().use_elliptic_key_signer(private_key=key, password=password)  # type: ignore[arg-type]
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise ConfigError(f"--key: {key}: is no private key of an elliptic curve that can be used ({_first(error)}); docs/security.md says "
                          "how to make one") from None
    with tempfile.TemporaryDirectory() as place:
        written = Path(place) / SIGNATURE
        config.set_hashing_config(_hashing(path)).sign(path, written)
        with held(path) if path.is_dir() else nullcontext():
            write_whole(target, written.read_bytes(), plain=True)
    return target


def verify(path: Path, key: Path) -> None:
    """Checks a folder or a file where it lies.

    Args:
        key: the public key that is trusted, PEM.

    Raises:
        Untrusted: it is not signed, not with that key, or not as it was signed; names the file.
        ConfigError: nothing is there, or the key cannot be used.
    """
    require_extra()
    _there(path)
    _check(path, _signature(path), key, path)


def verify_part(file: Path, key: Path) -> None:
    """Checks a file by its own signature, or as one of those that the signature of the nearest signed folder above it covers.

    Raises:
        Untrusted, ConfigError: as `verify`; or that signature leaves the file out, as a run's does its exports.
    """
    file = file.resolve()
    signed = next((one for one in (file, *file.parents) if signature_of(one).is_file()), file)
    verify(signed, key)
    if signed != file and file.relative_to(signed).as_posix() not in files_of(signed):
        raise Untrusted(f"{file}: is not signed, and the signature of {signed} leaves it out; sign it: quartet sign")


@contextmanager
def verified(path: Path, key: Path) -> Iterator[Path]:
    """Copies a folder's signed files to a private place, and checks the copy; it is removed in the end.

    Raises:
        Untrusted, ConfigError: as `verify`.
    """
    require_extra()
    _there(path)
    signature = _signature(path)
    with tempfile.TemporaryDirectory(prefix="quartet-verified-") as place:
        copy = Path(place).joinpath(*path.absolute().parts[1:][-3:])  # by which a run names its experiment
        copy.parent.mkdir(parents=True, exist_ok=True)
        _copy(path, copy)
        _check(copy, signature, key, path)
        yield copy


def files_of(path: Path) -> list[str]:
    """The names of the files that a signature covers, sorted."""
    left_out = set(unsigned(path))
    names = []
    for place, folders, files in os.walk(path):
        inside = Path(place).relative_to(path)
        folders[:] = [one for one in folders if (inside / one).as_posix() not in left_out]
        names += [name for one in files if (name := (inside / one).as_posix()) not in left_out]
    return sorted(names)


def key_of(signature: Path) -> str:
    """The SHA-256 of the public key that a signature says it is by. Raises Untrusted where the file is no signature."""
    try:
        return str(parse_json(read_small(signature, _LARGEST))["verificationMaterial"]["publicKey"]["hint"])
    except (OSError, DataError, ValueError, KeyError, TypeError) as error:
        raise Untrusted(f"{signature}: is no signature of a model ({_first(error)})") from None


def _there(path: Path) -> None:
    if not path.exists():
        raise ConfigError(f"{path}: there is no such file or folder")
    if path.is_dir():
        refuse_links(path)
    else:
        check_regular(path, error=ConfigError)


def _signature(path: Path) -> bytes:
    file = signature_of(path)
    if not file.is_file():
        raise Untrusted(f"{path}: is not signed (there is no {file.name}); whoever made it can sign it: quartet sign")
    try:
        return read_small(file, _LARGEST)
    except OSError as error:
        raise Untrusted(f"{file}: cannot be read: {error.strerror or error}") from None


def _hashing(path: Path) -> Any:
    from model_signing import hashing

    config = hashing.Config().use_file_serialization(hashing_algorithm="sha256")
    return config.set_ignored_paths(paths=unsigned(path) if path.is_dir() else [], ignore_git_paths=False)


def _copy(path: Path, target: Path) -> None:
    """The signed files alone, each opened without following a link."""
    left_out = set(unsigned(path))
    root = os.path.realpath(path)
    for place, folders, files, folder in os.fwalk(root):
        inside = Path(place).relative_to(root)
        folders[:] = [one for one in folders if (inside / one).as_posix() not in left_out]
        (target / inside).mkdir()
        for name in files:
            if (inside / name).as_posix() in left_out:
                continue
            try:
                descriptor = os.open(name, os.O_RDONLY | NO_LINK, dir_fd=folder)
            except OSError as error:
                raise Untrusted(f"{path / inside / name}: cannot be read: {error.strerror}") from None
            with os.fdopen(descriptor, "rb") as file, open(target / inside / name, "xb") as copy:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise Untrusted(f"{path / inside / name}: is no regular file")
                shutil.copyfileobj(file, copy, 1 << 20)


def _check(content: Path, signature: bytes, key: Path, shown: Path) -> None:
    """Raises Untrusted where `content`, which stands for `shown`, is not what the signature says, or that is not the key's."""
    from model_signing import verifying

    check_regular(key, "the public key", ConfigError)
    try:
        config = verifying.Config().use_elliptic_key_verifier(public_key=key).set_hashing_config(_hashing(content))
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise ConfigError(f"{key}: is no public key of an elliptic curve that can be used ({_first(error)})") from None
    stated = _stated(signature, shown)
    names = files_of(content) if content.is_dir() else ["."]
    both = (("missing", set(stated) - set(names)), ("added", set(names) - set(stated)))
    if found := "; ".join(f"{what}: {_listed(some)}" for what, some in both if some):
        raise Untrusted(f"{shown}: is not as it was signed; {found}")
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / SIGNATURE
        file.write_bytes(signature)
        try:
            config.verify(content, file)
        except Exception as error:  # the signature is a stranger's: parsers raise many kinds
            changed = {name for name in names if digest(content / name if content.is_dir() else content) != stated[name]}
            if changed:
                raise Untrusted(f"{shown}: is not as it was signed: {_listed(changed, shown)} was changed") from None
            raise Untrusted(f"{signature_of(shown)}: was not made with the key that belongs to {key} ({_first(error)})") from None


def _stated(signature: bytes, shown: Path) -> dict[str, str]:
    """Name -> SHA-256 as a signature states them; worth nothing until it is verified."""
    try:
        payload = parse_json(base64.b64decode(parse_json(signature)["dsseEnvelope"]["payload"], validate=True))
        return {str(one["name"]): str(one["digest"]) for one in payload["predicate"]["resources"]}
    except (ValueError, KeyError, TypeError) as error:
        raise Untrusted(f"{signature_of(shown)}: is no signature of a model ({_first(error)})") from None


def _listed(names: set[str], shown: Path | None = None) -> str:
    few = [shown.name if shown is not None and name == "." else name for name in sorted(names)[:_NAMED]]
    return ", ".join(few) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")


def _first(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:200].strip() if lines else type(error).__name__
