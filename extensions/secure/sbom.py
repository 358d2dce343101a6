"""The packages of this environment as a software bill of materials: CycloneDX 1.6, JSON."""

import re
import uuid
from datetime import datetime, timezone
from email import message_from_string
from email.message import Message
from importlib.metadata import Distribution, distributions
from typing import Any


def sbom() -> dict[str, Any]:
    """Name, version and licence of every installed distribution, with its package URL."""
    found: dict[str, Message] = {}
    for one in distributions():
        fields = _fields(one)
        name = fields["Name"]
        if name:
            found.setdefault(re.sub(r"[-_.]+", "-", name).lower(), fields)
    components = []
    for name, fields in sorted(found.items()):
        address = f"pkg:pypi/{name}@{fields['Version']}"
        licence = fields["License-Expression"]
        components.append({"type": "library", "bom-ref": address, "name": name, "version": fields["Version"], "purl": address,
                           **({"licenses": [{"expression": licence}]} if licence else {})})
    return {"bomFormat": "CycloneDX", "specVersion": "1.6", "serialNumber": f"urn:uuid:{uuid.uuid4()}", "version": 1,
            "metadata": {"timestamp": datetime.now(timezone.utc).isoformat(timespec="seconds")}, "components": components}


def _fields(one: Distribution) -> Message:
    """The fields of its metadata, without the long description below them, whose parsing would take most of a signature's time."""
    text = one.read_text("METADATA") or one.read_text("PKG-INFO") or one.read_text("") or ""
    return message_from_string(text.partition("\n\n")[0])
