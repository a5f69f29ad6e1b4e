"""The server behind `glassformer studio`: the page, and what of it needs Python.

What a browser sends is refused or believed at the door (auth_middleware.py: token, host, origin,
sizes), read as plain data (request_models.py), and worked on in another process (worker_pool.py,
jobs.py), which can be killed, has its memory and its time measured out, may open no files but those
that were given (fs_sandbox.py, catalogue.py), and does what its one list says (worker_main.py,
handlers.py). Nothing that is sent is executed.
"""
