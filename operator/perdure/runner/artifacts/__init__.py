"""What prepares the input artifacts of an activity and uploads its output artifacts, in containers of Perdure in the same pod."""
