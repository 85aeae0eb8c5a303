"""Rollouts → traces for Perfetto: native protobuf (``.pftrace``) or Chrome JSON (``.json``)."""
