"""The description of the management API (OpenAPI 3.1): schemas of bodies and answers, operations by endpoint,
and the document made of both.
"""
