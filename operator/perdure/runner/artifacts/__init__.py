"""What prepares the input artifacts of an activity, and uploads its output artifacts: containers of Perdure in the activity's pod."""
