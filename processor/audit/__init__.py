"""What an operator asks of a running system: is it right (verify), what happened (inspect), is it well (doctor)."""
