"""What works on files, without a cluster: the checks of `lint`, simulations, replays, and conversions."""
