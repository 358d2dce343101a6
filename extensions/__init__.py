"""Rooms that the core does not know: each package registers, when it is imported, what it brings through the core's doors
(`pipelines.config.doors`), and has its settings, commands and tests. Nothing imports them, and they import pipelines alone."""
