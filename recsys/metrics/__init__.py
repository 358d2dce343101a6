"""How answers for interactions are judged, and the baselines beside them."""
