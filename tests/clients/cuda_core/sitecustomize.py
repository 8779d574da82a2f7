"""Loads the redirection in processes that tests start, which pytest's options do not reach."""

import os

if os.environ.get("PAGEWISE_REDIRECT"):
    import pagewise_redirect  # noqa: F401
