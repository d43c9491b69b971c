"""Runs and other objects as users see them: read leniently, because another version may have written them. Pure."""
