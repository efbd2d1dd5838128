"""What to expect: rates with honest intervals, tests of their assumptions, checkpoint plans and fenced-off projections.

Pure functions of arrays and figures. numpy and scipy are imported inside functions.
"""
