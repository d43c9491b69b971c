"""What Perdure runs in pods: `http` and `resource` activities, artifacts, and the export of logs.

It uses the operator's image, and the pod's permissions. After the work of an activity, it evaluates the expressions that need the
result.
"""
