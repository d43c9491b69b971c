"""The output of the command: turns objects of the API server into lines of text. Pure: no I/O, and `now` is an argument."""
