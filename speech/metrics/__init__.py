"""How answers for recordings are judged, and the baselines beside them."""
