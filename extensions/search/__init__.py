"""Search by meaning: `quartet index` keeps the vectors that an encoder makes of texts, pictures or recordings, `quartet search` and
POST /v1/search find the nearest ones of a query. docs/search.md shows each.

Up to 100,000 rows the search is exact and needs no extra; from there on it is that of usearch (extra `search`).
"""

from pipelines.config.doors import COMMANDS, OPTIONS, PROTOCOLS

COMMANDS.add("index", "extensions.search.commands:index")
COMMANDS.add("search", "extensions.search.commands:search")
OPTIONS.add("search", "extensions.search.options:SearchOptions", commands=("serve",))
PROTOCOLS.add("search", "extensions.search.routes:Searching")
