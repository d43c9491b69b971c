"""Informers: process watch events and lists, update the index of the cluster, and enqueue keys."""
