"""Our own blocking clients, standard library only."""
