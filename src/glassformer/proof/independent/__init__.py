"""A second, independent proof checker: it shares no code with the first but the model and the task.

ball_arithmetic.py encloses what a model computes, in balls of python-flint. checker.py checks the
certificates of adders; columns.py and rows.py find their cases and sums anew.
"""
