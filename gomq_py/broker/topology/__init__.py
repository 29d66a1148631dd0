"""The topology of a vhost: what exists, who refers to whom, what of it is kept, and how it goes out to a file
and comes in from one.
"""
