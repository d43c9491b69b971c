"""The pods of activity attempts in the Kubernetes API: pods and Leases, logs, the ServiceAccount, expired pods."""
