"""Apply the effects of a run after its commit: `effects` applies them in order.

Object names are locks, and requests carry an ID, so an effect that is applied again after a crash changes nothing. The result of
an effect is an input of the next reconciliation.
"""
