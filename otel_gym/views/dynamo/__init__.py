"""Spans → Dynamo's trace records, written when they end or from a store.

``places``, ``requests``, ``tools`` and ``live`` run inside traced programs too: pure Python and OpenTelemetry.
"""
