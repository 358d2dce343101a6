"""Models behind HTTP: connections, bodies, batches, what is observed of them, and the dialects that clients speak."""
