"""The runner in the pods of `http` and `resource` activities. It uses the operator's image, and the pod's permissions."""
