"""Objects in an S3-compatible bucket, and the archive of finished runs as files in one."""
