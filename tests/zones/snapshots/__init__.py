"""Snapshots of a tenant."""
