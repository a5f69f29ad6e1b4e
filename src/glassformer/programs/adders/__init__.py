"""The smallest adders. Each is a parametrization: a formula from a few numbers to all weights.

docs/adders.md has the table of their sizes, margins and proofs. adder-coupled is trained;
coupled.py extends it to more digits.

Parameter counts leave out the formulas and their constants: digits, squares, powers of ten.
"""
