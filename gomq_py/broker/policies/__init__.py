"""What operators set for many at once: policies, parameters of components, limits of vhosts and users."""
