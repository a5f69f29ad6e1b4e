"""The independent proof checker. It shares only Model and Task with the first checker.

checker.py checks certificates of adders in ball arithmetic; tasks.py checks other tasks in interval
arithmetic.
"""
