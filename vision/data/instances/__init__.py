"""Pictures with the masks of things."""
