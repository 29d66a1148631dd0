"""What operators set: policies, parameters (shovels, upstreams...), and limits of vhosts and users."""
