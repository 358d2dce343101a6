"""What the domains share: configuration, input, training, monitoring, reports, serving. Imports no domain."""
