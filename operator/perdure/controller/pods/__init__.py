"""The pods of activity attempts in the Kubernetes API: pods and Leases, their logs, Services, workspaces, the ServiceAccount."""
