"""Credentials of object stores: those of the environment, which the stores read themselves, and the files of the AWS command line."""

import configparser
from collections.abc import Mapping
from os import environ
from pathlib import Path

from pipelines.base.errors import ConfigError
from pipelines.stores.remote import Address

_FILE = {"aws_access_key_id": "access_key_id", "aws_secret_access_key": "secret_access_key", "aws_session_token": "session_token",
         "region": "region"}
_AZURE = ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_CONNECTION_STRING", "AZURE_STORAGE_USE_EMULATOR")


def of_aws_file(environment: Mapping[str, str]) -> dict[str, str]:
    """The settings of the profile AWS_PROFILE in ~/.aws; nothing where the environment has keys, or there is no such file."""
    if environment.get("AWS_ACCESS_KEY_ID") or environment.get("AWS_WEB_IDENTITY_TOKEN_FILE"):
        return {}
    profile = environment.get("AWS_PROFILE", "default")
    found: dict[str, str] = {}
    for variable, usual, section in (("AWS_CONFIG_FILE", "~/.aws/config", profile if profile == "default" else f"profile {profile}"),
                                     ("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials", profile)):
        parser = configparser.ConfigParser(interpolation=None)
        path = Path(environment.get(variable) or usual).expanduser()
        try:
            parser.read(path, encoding="utf-8")
        except (configparser.Error, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: cannot be read: {str(error).splitlines()[0]}") from None
        if parser.has_section(section):
            found |= {ours: parser[section][theirs] for theirs, ours in _FILE.items() if theirs in parser[section]}
    return found


def check_credentials(address: Address) -> None:
    """Raises ConfigError where a store cannot even be named without a variable that is not set."""
    if address.protocol == "az" and not any(name in environ for name in _AZURE):
        raise ConfigError(f"{address}: the storage account is not named; set AZURE_STORAGE_ACCOUNT_NAME, and a key, a token or an identity")
