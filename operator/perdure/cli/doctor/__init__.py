"""The checks of `perdure doctor`: each reads a few objects and returns one finding."""
