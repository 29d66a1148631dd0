"""What programs of users import by the names of before."""
from gomq_py.amqp.wire import fields, properties
from gomq_py.content import fields as content_fields, properties as content_properties


def test_properties_and_tables_are_found_where_they_were():
    assert properties.Properties is content_properties.Properties
    assert (fields.Int64, fields.encode_table, fields.decode_table) == (
        content_fields.Int64, content_fields.encode_table, content_fields.decode_table)
