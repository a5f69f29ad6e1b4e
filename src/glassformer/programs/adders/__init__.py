"""The smallest adders, set by hand: each a blueprint, a formula that makes all of a few numbers.

What `count` says of them at 10 digits (unique is the leaderboard's rule; strict and bits include
declared constants and the config's floats):

    program          layers  total  nonzero  unique  distinct  strict  bits  smallest margin
    adder-least           1     77       33       3        27       5   108  0.371     proved
    adder-hinge           1     77       33       8        28       9   149  0.364     proved
      norm=rms            1     77       33       8        29       9   150  0.000056  proved
    adder-prefix          1    265      134       4        91       6    97  1.1       proved
    adder-36              2    229       43       7        25       9   433  3,700     proved

adder-coupled is trained: coupled.py makes it longer.

The formulas themselves are not counted, nor is counting: digits, their squares, powers of ten.
"""
