"""What Perdure runs in pods: `http` and `resource` activities, and artifacts.

It uses the operator's image, and the pod's permissions.
"""
