"""Rollouts as a Mooncake trace, which Dynamo's replay simulates: spans → requests and tools → rows."""
