"""Errands: what takes more than one room, each a function that a command and the front door share.

They read what people type by themselves (a ref, a path, a Model; see face.py), since each means
something of its own by it: `board` a submission's file, `task` a name to give, `sweep` a spec,
`report` and `open` several models.
"""
