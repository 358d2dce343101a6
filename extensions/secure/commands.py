"""The commands sign, verify, encrypt and decrypt. Import no TensorFlow."""

from pathlib import Path
from typing import Annotated

import typer

from pipelines.base.errors import ConfigError
from pipelines.commands.shell import RUNS, Runs, echo, shown
from pipelines.runs.folder import RunFolder
from pipelines.tuning.search_folder import SearchFolder

What = Annotated[str, typer.Argument(
    metavar="RUN|EXPORT|FILE", show_default=False,
    help="A run or a search, the folder of an exported model, a preset or an index, or a file, such as a table of data.")]
SBOM = "sbom.json"


def _named(runs: Path, what: str) -> Path:
    from pipelines.runs.listing import find_run

    path = Path(what).expanduser()
    search = next((one.path for one in (SearchFolder(path), SearchFolder(runs / what)) if one.begun), None)
    if search is not None:
        return search
    files = ("index.json", "saved_model.pb")  # of an index of vectors, of an exported model
    there = path.is_file() or any((path / name).is_file() for name in files) or (
        (path / "config.json").is_file() and not RunFolder(path).begun)
    return path if there else find_run(runs, what).path


def sign(
    what: What,
    key: Annotated[Path, typer.Option(metavar="FILE", show_default=False, help="Your private key: an elliptic curve's, PEM.")],
    runs: Runs = RUNS,
) -> None:
    """Sign a run, an exported model, a preset or a file (OpenSSF model signing), with provenance.json and sbom.json. Needs `trust`."""
    from extensions.secure import signing
    from extensions.secure.provenance import PROVENANCE, provenance
    from extensions.secure.sbom import sbom
    from pipelines.base.files import write_json

    signing.require_extra()
    path = _named(runs, what)
    folder = RunFolder(path)
    if folder.begun:
        with folder.locked():
            write_json(path / SBOM, sbom())
            write_json(path / PROVENANCE, provenance(folder))
            target = signing.sign(path, key)
    else:
        run = RunFolder(path.absolute().parent)
        if path.is_dir():
            write_json(path / SBOM, sbom(), plain=True)
            if run.begun:
                write_json(path / PROVENANCE, provenance(run, path), plain=True)
        target = signing.sign(path, key)
    echo(f"signature    {shown(target)}")


def verify(
    what: What,
    key: Annotated[Path, typer.Option(metavar="FILE", show_default=False, help="The public key that you trust, PEM.")],
    runs: Runs = RUNS,
) -> None:
    """Check a signature: every file as it was signed, none added, none missing. Exit status 1 where it is not so. Needs `trust`."""
    from extensions.secure import signing

    path = _named(runs, what)
    signing.verify(path, key)
    count = len(signing.files_of(path)) if path.is_dir() else 1
    echo(f"verified     {shown(path)}: {count} {'file' if count == 1 else 'files'} as signed with the key of {key}")


Folder = Annotated[str, typer.Argument(
    metavar="RUN|SEARCH|EXPORT", show_default=False, help="A run, a search, or the folder of an exported model.")]


def _folder(runs: Path, what: str) -> Path:
    path = _named(runs, what)
    if path.is_file():
        raise ConfigError(f"{path}: is a file; a run, a search or the folder of an exported model can be encrypted")
    return path


def encrypt(what: Folder, runs: Runs = RUNS) -> None:
    """Encrypt a run, a search or an exported model where it lies, with the key of --age-key (age-keygen). Needs `trust`."""
    from extensions.secure.encrypted_folders import encrypt_folder

    path = _folder(runs, what)
    echo(f"encrypted    {shown(path)}: {encrypt_folder(path)} files")


def decrypt(
    what: Folder, runs: Runs = RUNS,
    output: Annotated[Path | None, typer.Option(
        "--output", "-o", metavar="DIR", show_default="where it lies", help="A new folder for a plain copy.")] = None,
) -> None:
    """Write a run, a search or an exported model plain again. Needs `trust`."""
    from extensions.secure.encrypted_folders import decrypt_folder

    path = _folder(runs, what)
    count = decrypt_folder(path, output)
    echo(f"decrypted    {shown(output or path)}: {count} files")
