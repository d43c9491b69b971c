"""What is done after a run's commit: one module for each sort of effect, `applying` does them in order.

Names are locks, and requests carry an ID, so whatever is done again after a crash is found done. What comes of an effect returns
as an input of the next pass.
"""
