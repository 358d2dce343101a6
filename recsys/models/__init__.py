"""The networks, and what they look up by number."""
