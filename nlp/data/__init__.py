"""From texts on disk to examples: opened, divided, decoded and inspected."""
