"""From images on disk to examples: opened, divided, decoded, and looked at."""
