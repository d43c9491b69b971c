"""Prepare the input artifacts of an activity and upload its output artifacts, in containers of Perdure in the same pod."""
