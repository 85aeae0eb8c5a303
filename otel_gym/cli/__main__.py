"""``python -m otel_gym.cli``: the command where no script is installed."""

from otel_gym.cli.main import app

app(prog_name="otel-gym")
