"""Tracing turned on from outside: for programs that know nothing of it.

``starting`` does it, ``entry_points`` are OpenTelemetry's ways to it, ``launch`` is that of ``otel-gym run``, whose
processes go through ``site`` and ``child``; ``explain`` says what would act here.
"""
