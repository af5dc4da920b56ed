"""check, backup, restore: the upkeep of stores."""
