"""What is stored of workflows."""
