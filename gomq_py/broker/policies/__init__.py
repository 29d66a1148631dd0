"""Settings of operators: policies, parameters (shovels, upstreams...), limits of vhosts and users."""
