"""Dynamo's trace files → a trace for Perfetto, record by record, without a store."""
