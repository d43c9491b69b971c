"""The verbs of the command, one module each: they read options, send requests to the cluster, and print the output of `view`."""
