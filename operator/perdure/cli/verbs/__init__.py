"""The verbs of the command, in a module for each subject: they read options, send requests, and print the output of `view`."""
