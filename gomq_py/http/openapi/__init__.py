"""The description of the management API (OpenAPI 3.1): schemas of what goes in and out, operations by
endpoint, and the document made of both.
"""
