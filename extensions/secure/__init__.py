"""Runs that are signed, encrypted or opened in a sandbox, with their provenance and bill of materials. docs/security.md shows each.

Imports no package of the extra `trust` until it is needed.
"""

from pipelines.config.doors import COMMANDS, GUARDS, LINEAGE, OPTIONS, STORAGES

_READ = ("evaluate", "predict", "chat", "embed", "nearest", "index", "search", "serve", "export", "report", "runs compare", "train",
         "tune")

COMMANDS.add("sign", "extensions.secure.commands:sign")
COMMANDS.add("verify", "extensions.secure.commands:verify")
COMMANDS.add("encrypt", "extensions.secure.commands:encrypt")
COMMANDS.add("decrypt", "extensions.secure.commands:decrypt")
OPTIONS.add("age key", "extensions.secure.options:age_key", commands=(*_READ, "runs", "encrypt", "decrypt"))
OPTIONS.add("encrypt", "extensions.secure.options:encrypt", commands=("train", "tune"))
OPTIONS.add("signature", "extensions.secure.options:require_signature",
            commands=(*_READ, "check", "race", "load", "prune", "register", "push"))
OPTIONS.add("sandbox", "extensions.secure.options:sandbox", commands=("check", "evaluate", "predict", "export"))
OPTIONS.add("lineage", "extensions.secure.lineage:key_option", commands=("lineage",))
STORAGES.add("encrypted", "extensions.secure.age_storage:AgeStorage")
GUARDS.add("signatures", "extensions.secure.guard:Signatures")
GUARDS.add("encryption", "extensions.secure.guard:KeyStaysHere")
GUARDS.add("sandbox", "extensions.secure.guard:Confinement")
LINEAGE.add("signature", "extensions.secure.lineage:SignatureLine")
