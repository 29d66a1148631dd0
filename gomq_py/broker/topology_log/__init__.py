"""The log of what is durable beside messages: every definition as a change of it, replayed at boot."""
