"""Runs on record elsewhere: trackers of experiments (MLflow, Weights & Biases), MLflow's registry of models, hubs of models, and the data
as Croissant describes them. docs/reports.md shows each. Imports no package of theirs until it is needed.

A tracked run is sent by a process beside the training, which follows metrics.jsonl: the training waits for nothing and holds nothing back.
"""

from extensions.tracking.settings import Track
from pipelines.config.doors import COMMANDS, HOOKS, LINEAGE
from pipelines.config.schema import Monitor
from pipelines.config.variants import add_settings

add_settings(Monitor, Track)
HOOKS.add("tracking", "extensions.tracking.hook:Tracked")
HOOKS.add("croissant", "extensions.tracking.hook:Described")
HOOKS.add("hub card", "extensions.tracking.hook:HubCard")
COMMANDS.add("register", "extensions.tracking.commands:register")
COMMANDS.add("push", "extensions.tracking.commands:push")
LINEAGE.add("tracked", "extensions.tracking.lineage:TrackedLine")
