"""The packages of this environment as a software bill of materials: CycloneDX 1.6, JSON."""

import re
import uuid
from datetime import datetime, timezone
from importlib.metadata import Distribution, distributions
from typing import Any


def sbom() -> dict[str, Any]:
    """Name, version and licence of every installed distribution, with its package URL."""
    found: dict[str, Distribution] = {}
    for one in distributions():
        name = one.metadata["Name"]
        if name:
            found.setdefault(re.sub(r"[-_.]+", "-", name).lower(), one)
    components = []
    for name, one in sorted(found.items()):
        address = f"pkg:pypi/{name}@{one.version}"
        licence = next(iter(one.metadata.get_all("License-Expression") or ()), None)
        components.append({"type": "library", "bom-ref": address, "name": name, "version": one.version, "purl": address,
                           **({"licenses": [{"expression": licence}]} if licence else {})})
    return {"bomFormat": "CycloneDX", "specVersion": "1.6", "serialNumber": f"urn:uuid:{uuid.uuid4()}", "version": 1,
            "metadata": {"timestamp": datetime.now(timezone.utc).isoformat(timespec="seconds")}, "components": components}
