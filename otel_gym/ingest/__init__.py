"""Files and streams that others wrote → spans."""
