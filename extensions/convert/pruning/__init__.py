"""`quartet prune`: a trained run with fewer filters, units and heads."""
