"""The studio's server: it serves the page and handles requests that need Python.

A request is checked (auth_middleware.py), parsed as plain data (request_models.py) and handled
(handlers.py) in another process with limits on time and memory (worker_pool.py, jobs.py) that can
open only the folders passed by the user (fs_sandbox.py, catalogue.py). No request is executed.
"""
