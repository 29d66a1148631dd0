"""Client connections and logins: the parts that all doors share."""
