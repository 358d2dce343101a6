"""Models that are fitted at once, by a solver, and not by steps."""
