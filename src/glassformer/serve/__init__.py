"""The server behind `glassformer open`: the page, and what of it needs Python.

What a browser sends is refused or believed at the door (guard.py: token, host, origin, sizes), read
as plain data (asked.py), and worked on in another process (pool.py, jobs.py), which can be killed,
has its memory and its time measured out, may open no files but those that were given (fence.py,
shelf.py), and does what its one list says (child.py, work.py). Nothing that is sent is executed.
"""
