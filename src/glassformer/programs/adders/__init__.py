"""The smallest adders, set by hand: each a blueprint, a formula that makes all of a few numbers.

docs/adders.md has the table of their sizes, margins and proofs. adder-coupled is trained:
coupled.py makes it longer.

The formulas themselves are not counted, nor is counting: digits, their squares, powers of ten.
"""
