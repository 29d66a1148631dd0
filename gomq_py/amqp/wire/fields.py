"""Field tables under the name they had before ``content`` was a room of its own: programs of users import
them from here.
"""
from gomq_py.content.fields import Int64, decode_table, encode_table

__all__ = ["Int64", "decode_table", "encode_table"]
