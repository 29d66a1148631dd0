"""The OpenAPI 3.1 description of the management API: schemas, operations by endpoint, and the document."""
