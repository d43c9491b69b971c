"""What runs in the pods of activities with `http` or `resource`: the image of the operator, with the permissions of the pod."""
