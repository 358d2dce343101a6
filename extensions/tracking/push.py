"""`quartet push`: a finished run as a model repository on a hub such as Hugging Face's. Needs the extra `hub`.

What is sent is a list of what a run's files are for, not a folder: the card, the settings, the model, the export with what signs it. No
data, no predictions, no report, which shows examples; nothing encrypted unless that is asked for, and no key at all.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from pipelines.base import storage
from pipelines.base.errors import ConfigError, QuartetError
from pipelines.base.inside import refuse_links
from pipelines.runs.folder import RunFolder

SCHEME = "hf://"
RUN_FILES = ("README.md", "experiment.yaml", "croissant.json", "provenance.json", "sbom.json", "model/model.keras", "model/facts.json")
EXPORT_FILES = ("saved_model.pb", "fingerprint.pb", "quartet.json", "README.txt", "model.sig", "provenance.json", "sbom.json")
EXPORT_FOLDERS = ("variables", "assets")
KEYS = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----|AGE-SECRET-KEY-1")
BEGINNING = 1 << 16  # bytes of a file in which a key is looked for


class NotPushed(QuartetError):
    """The hub refused, or cannot be reached."""


@dataclass(frozen=True)
class Plan:
    """What would be sent: name in the repository -> file, with bytes of all."""

    repository: str
    files: dict[str, Path]

    @property
    def bytes(self) -> int:
        return sum(file.stat().st_size for file in self.files.values())


def plan(folder: RunFolder, address: str, *, encrypted: bool = False) -> Plan:
    """Looks through the files, and sends nothing.

    Args:
        address: `hf://owner/name`.
        encrypted: encrypted files may be sent, as they are.

    Raises:
        ConfigError: no such address, the run is not finished, or a file that is not to be sent; names it and the remedy.
    """
    repository = address.removeprefix(SCHEME)
    if not address.startswith(SCHEME) or not re.fullmatch(r"[\w.-]{1,96}/[\w.-]{1,96}", repository):
        raise ConfigError(f"{address}: is no repository of a hub; write hf://OWNER/NAME")
    refuse_links(folder.path)
    if not folder.finished:
        raise ConfigError(f"{folder.path}: the run is not finished (it has no report); the command that began it resumes it")
    files = {name: folder.path / name for name in RUN_FILES if (folder.path / name).is_file()}
    if "README.md" not in files:
        raise ConfigError(f"{folder.path}: has no README.md, the model card; a run over several seeds is sent by one of its seeds")
    export = folder.path / "export"
    for file in sorted(one for one in export.rglob("*") if one.is_file()):
        name = file.relative_to(export).as_posix()
        if name not in EXPORT_FILES and name.partition("/")[0] not in EXPORT_FOLDERS:
            raise ConfigError(f"{file}: is nothing that quartet export writes; move it out of the folder, all of which would be public")
        files[f"export/{name}"] = file
    for file in files.values():
        if storage.holder(file) and not encrypted:
            raise ConfigError(f"{file}: is encrypted; quartet decrypt writes a plain copy of the run, --encrypted sends it as it is")
        with open(file, "rb") as opened:
            if KEYS.search(opened.read(BEGINNING)):
                raise ConfigError(f"{file}: holds a private key, which is never sent; take it out")
    return Plan(repository, files)


def push(what: Plan, *, private: bool = False, message: str = "") -> str:
    """Creates the repository where it is missing, and sends all files in one commit. Returns its address.

    Args:
        private: only its owners see it; one that is there and public is refused.
        message: of the commit.

    Raises:
        ConfigError: the extra is missing, or the repository is public.
        NotPushed: the hub refused, or cannot be reached.
    """
    try:
        import huggingface_hub as hub
    except ImportError as error:
        raise ConfigError(f"push needs the extra: pip install 'keras-quartet[hub]' ({error})") from error
    api = hub.HfApi(endpoint=os.environ.get("HF_ENDPOINT"), library_name="keras-quartet")
    try:
        made = api.create_repo(what.repository, private=private or None, exist_ok=True)
        public = private and not api.model_info(what.repository).private
        if not public:
            additions = [hub.CommitOperationAdd(name, str(file)) for name, file in what.files.items()]
            api.create_commit(what.repository, additions, commit_message=message or "A run of Quartet")
    except Exception as error:  # of the hub's package and of those that it calls by
        said = " ".join(str(error).split()) or type(error).__name__
        raise NotPushed(f"{SCHEME}{what.repository}: {said[:500]}") from error
    if public:
        raise ConfigError(f"{SCHEME}{what.repository}: is there already, and public; nothing was sent. Give another name, or make it "
                          "private first")
    return str(made)
