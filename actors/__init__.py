"""Who finds the work and runs it: scanner, manager, worker, coordinator."""
