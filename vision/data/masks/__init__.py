"""Pictures with a class for each of their pixels: where they lie, and what their values mean."""
