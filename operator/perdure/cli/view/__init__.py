"""What the command shows: from objects of the API server to lines of text. Pure: no I/O, and `now` is an argument."""
