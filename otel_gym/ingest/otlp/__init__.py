"""OTLP, as it comes over the network and as others keep it in files → spans of a store."""
