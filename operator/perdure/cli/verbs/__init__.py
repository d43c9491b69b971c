"""The verbs of the command, in a module for each subject: they read options, send requests to the cluster, and print the output of `view`."""
