"""How answers for texts are judged, and the baselines beside them."""
