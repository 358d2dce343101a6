"""How answers for images are judged, and the baselines beside them."""
