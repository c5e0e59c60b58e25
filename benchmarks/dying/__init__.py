"""A folder for PYTHONPATH, not to be imported: see sitecustomize.py."""
