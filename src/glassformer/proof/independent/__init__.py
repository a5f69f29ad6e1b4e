"""Independent proof checker, which shares only Model and Task with the first checker.

checker.py checks certificates of adders in ball arithmetic. tasks.py checks all other tasks in
interval arithmetic.
"""
