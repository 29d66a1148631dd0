"""The management API from outside: a real broker, a plain HTTP client and pika."""
