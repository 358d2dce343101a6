"""Encrypted searches: how one begins and resumes, so that nothing of its runs but settings and scores is plain. Imports no TensorFlow.

The search's folder is marked, and each of its runs by itself, so that a run is read, resumed and decrypted as any encrypted run.
"""

from pipelines.base import encryption
from pipelines.base.encryption import MARKER, Encrypted, begins_encrypted, require_key
from pipelines.base.errors import ConfigError
from pipelines.base.files import write_whole
from pipelines.runs.encryption import runs_of_search
from pipelines.tuning.search_folder import SearchFolder, read_events


def refuse_elsewhere(refused: bool) -> None:
    """Raises ConfigError where an encrypted search would run on other machines, or be kept there."""
    if refused:
        raise ConfigError("--encrypt: not with --ray or runs in a store, where other machines would need the key; search on this machine, "
                          "with --runs on its disk")


def check(folder: SearchFolder, encrypt: bool, *, elsewhere: bool) -> bool:
    """Whether a search is encrypted, with its key here; changes nothing.

    Args:
        encrypt: a new one shall be.
        elsewhere: its trials or its files are on other machines.

    Raises:
        ConfigError: it was begun without, or other machines would need the key; or encrypting or decrypting it was interrupted.
        Encrypted: there is no key, or another one; or its files are encrypted, and it does not say so.
    """
    encrypted = encryption.require_fitting(folder.path)
    refuse_elsewhere(elsewhere and (encrypt or encrypted))
    if encrypted:
        unmarked = next((run for run in runs_of_search(folder.path) if not (run / MARKER).is_file()), None)
        if unmarked is not None:
            raise ConfigError(f"{unmarked}: is not encrypted, and its search is: quartet encrypt or decrypt was interrupted; give it again "
                              f"for {folder.path}")
        return True
    if any(map(begins_encrypted, [*folder.report.glob("*"), *folder.trials.glob("*/log.txt")])):
        raise Encrypted(f"{folder.path}: its files are encrypted, and {MARKER} is missing; going on would write plain ones. Put it back")
    if encrypt:
        require_key("--encrypt: the new search")
        if read_events(folder.journal)[0]:
            raise ConfigError(f"{folder.path}: this search was begun without --encrypt; encrypt what is there first: quartet encrypt")
    return False


def begin(folder: SearchFolder, encrypt: bool, *, elsewhere: bool) -> bool:
    """Of a search that is locked and compared: the same, and marks a new one that shall be encrypted."""
    if check(folder, encrypt, elsewhere=elsewhere):
        return True
    if encrypt:
        write_whole(folder.path / MARKER, encryption.marker(require_key("the new search")))
    return encrypt
