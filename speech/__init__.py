"""Speech recognition on the shared input layer and training harness: spoken commands, and speech to text."""
