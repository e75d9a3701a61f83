"""Bytes to records and back: Avro schemas, the three frames, and nothing about Kafka."""
