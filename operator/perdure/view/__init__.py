"""What users see of runs and other objects, which another version may have written: read leniently, and shown as lines. Pure."""
