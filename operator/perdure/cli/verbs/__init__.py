"""The verbs of the command, one module each: options, asking the cluster, and handing the answer to `view`."""
