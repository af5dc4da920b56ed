"""Workflows with steps in PostgreSQL."""
