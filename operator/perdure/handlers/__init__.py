"""What kopf calls: the watches and what they feed to the informers, login, start and end, probes; and the process, assembled."""
