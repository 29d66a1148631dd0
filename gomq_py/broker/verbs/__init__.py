"""Verbs: what a client may ask of a vhost, through whichever door: declare, bind, publish, take and so on.

Each is one function, which asks for the rights that it needs and then does it. Above the vhost, below the
doors: they translate between a protocol and these functions, and ask for no right themselves.
"""
