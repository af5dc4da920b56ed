"""Load generators and the figures they measure."""
