"""From recordings on disk to examples: opened, divided, decoded and inspected."""
