"""Verbs: what a client asks of a vhost, whichever door it comes through: declare, bind, publish, take, with the rights that each needs.

Above the vhost, below the doors, which translate between their protocol and these functions and ask for no right themselves.
"""
