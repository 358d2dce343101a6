"""The tasks of this domain, one a module; `settings.py` registers them."""
