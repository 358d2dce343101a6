"""A run from experiment to report, its folder, and what there is to list, compare and clean."""
