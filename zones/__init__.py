"""What is stored, and nothing that runs."""
