"""Data, results and runs in object stores: s3://, gs://, az://, and whatever fsspec has a protocol for. docs/cluster.md shows how.

Imports no package of the extra `remote` until an address is asked for.
"""

from pipelines.config.doors import REMOTES

REMOTES.add("objects", "extensions.remote.store:ObjectStore")
